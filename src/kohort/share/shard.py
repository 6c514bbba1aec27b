"""The share coordinator of one partition of `__share_group_state`."""

from kohort.machine.shard import Result
from kohort.model.image import ClusterImage, ImageDelta
from kohort.share.records import ShareRecord
from kohort.share.states import ShareStates
from kohort.share.upkeep import cold_deadline, delete_states, prune_deadline


class ShareShard(ShareStates):
    """Implements `kohort.machine.shard.Shard` for `ShareRecord`."""

    def on_loaded(self, image: ClusterImage, _now_ms: int, /) -> Result[ShareRecord, None]:
        deadlines = [prune_deadline(self), cold_deadline(self)]
        unknown = [key for key in self.states if image.topic_by_id(key.topic_id) is None]
        if unknown:
            deadlines.append(delete_states(unknown))
        return Result(deadlines=deadlines)

    def on_image(self, _image: ClusterImage, delta: ImageDelta, _now_ms: int, /) -> Result[ShareRecord, None]:
        """Delete the states of deleted topics, in operations of their own: there may be many."""
        deleted = {topic.topic_id for topic in delta.deleted}
        keys = [key for key in self.states if key.topic_id in deleted] if deleted else []
        return Result(deadlines=[delete_states(keys)]) if keys else Result()
