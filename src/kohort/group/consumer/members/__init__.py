"""Members of a consumer group: their values, how they are found or made, and how they leave."""
