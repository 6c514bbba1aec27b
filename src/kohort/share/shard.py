"""The share coordinator of one partition of `__share_group_state`."""

from kohort.machine.shard import Result
from kohort.model.image import ClusterImage, ImageDelta
from kohort.share.records import ShareRecord
from kohort.share.states import ShareStates
from kohort.share.upkeep import cold_deadline, delete_topics, prune_deadline


class ShareShard(ShareStates):
    """Implements `kohort.machine.shard.Shard` for `ShareRecord`."""

    def on_loaded(self, _image: ClusterImage, _now_ms: int, /) -> Result[ShareRecord, None]:
        return Result(deadlines=[prune_deadline(self), cold_deadline(self)])

    def on_image(self, _image: ClusterImage, delta: ImageDelta, _now_ms: int, /) -> Result[ShareRecord, None]:
        if not delta.deleted:
            return Result()
        return delete_topics(self, {topic.topic_id for topic in delta.deleted})
