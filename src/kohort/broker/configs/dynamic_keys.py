"""
Dynamic broker configurations: keys that Kafka can change at run time. DescribeConfigs shows all other keys as read-only.

Source: Kafka DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS.
"""

from kohort.broker.configs.topic_configs import BROKER_SYNONYMS

_LISTENERS = """
listeners listener.security.protocol.map principal.builder.class
ssl.protocol ssl.provider ssl.cipher.suites ssl.enabled.protocols ssl.keystore.type ssl.keystore.location
ssl.keystore.password ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.truststore.type
ssl.truststore.location ssl.truststore.password ssl.truststore.certificates ssl.keymanager.algorithm
ssl.trustmanager.algorithm ssl.endpoint.identification.algorithm ssl.secure.random.implementation ssl.client.auth
ssl.engine.factory.class
sasl.mechanism.inter.broker.protocol sasl.jaas.config sasl.enabled.mechanisms sasl.kerberos.service.name
sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.window.factor sasl.kerberos.ticket.renew.jitter
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.refresh.min.period.seconds sasl.login.refresh.buffer.seconds
max.connections max.connections.per.ip max.connections.per.ip.overrides max.connection.creation.rate
num.network.threads
"""

_THREADS = """
num.io.threads num.replica.fetchers num.recovery.threads.per.data.dir background.threads
"""

_CLEANER = """
log.cleaner.threads log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
message.max.bytes log.cleaner.io.max.bytes.per.second log.cleaner.backoff.ms
"""

_OTHERS = """
metric.reporters producer.id.expiration.ms transaction.partition.verification.enable
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.follower.thread.pool.size remote.log.reader.threads
"""

DYNAMIC_KEYS = frozenset(
    [
        *(_LISTENERS + _THREADS + _CLEANER + _OTHERS).split(),
        *(brokers[0][0] for brokers in BROKER_SYNONYMS.values()),
    ]
)
