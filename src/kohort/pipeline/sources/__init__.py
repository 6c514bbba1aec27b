"""Where tables come from: Spark data sources over the decoder."""
