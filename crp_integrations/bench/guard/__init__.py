"""What the guard costs, and whether anything of one tenant ever comes out at another."""
