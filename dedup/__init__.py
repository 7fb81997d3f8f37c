"""Identity: canonical form and hashes, unique subgraphs, samples, splits."""
