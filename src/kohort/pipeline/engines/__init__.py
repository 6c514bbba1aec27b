"""The engines that make tables: Spark, and the local one, which needs neither Spark nor Java."""
