"""What stands below everything else: numbers, random numbers, files and facts about the machine."""
