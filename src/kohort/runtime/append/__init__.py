"""The write path of a shard: open batch, append, offsets reached, and replies that wait for the high watermark."""
