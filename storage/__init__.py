"""The data model that all rooms share, and versions of the dataset, local and on the Hub."""
