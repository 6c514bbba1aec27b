"""What is run: read a directory, make a table, publish it. So short that the tables carry the tests."""
