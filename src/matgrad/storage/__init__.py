"""Models and programs in files."""
