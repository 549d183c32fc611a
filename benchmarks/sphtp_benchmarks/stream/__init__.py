"""What streams from one to many do, next to publishers and subscribers of other systems."""
