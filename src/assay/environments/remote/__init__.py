"""Environments on the other side of a connection: clients, a server and a launcher."""
