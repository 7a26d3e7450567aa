"""What launchers of any kind share. Entered through its modules; holds nothing itself."""
