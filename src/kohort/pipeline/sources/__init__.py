"""Spark data sources over the decoder: directories and clusters, batches and streams."""
