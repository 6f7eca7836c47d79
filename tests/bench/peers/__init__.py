"""What the fabric is measured beside, one file each: the library as its users call it."""
