"""What commands draw and ask on a terminal."""
