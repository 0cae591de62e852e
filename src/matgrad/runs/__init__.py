"""What runs leave behind, records and logs: reading, drawing and comparing them."""
