//! Tests of an application that uses rskafka.

use kohort_testing::Broker;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use serde_json::json;

/// The application: it writes an order.
async fn publish(bootstrap: String, topic: String, order: &str) -> rskafka::client::error::Result<Vec<i64>> {
    let client = ClientBuilder::new(vec![bootstrap]).client_id("shop").build().await?;
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
    let record = Record {
        key: None,
        value: Some(order.as_bytes().to_vec()),
        headers: Default::default(),
        timestamp: chrono::Utc::now(),
    };
    partition.produce(vec![record], Compression::NoCompression).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_survives_a_new_leader() {
    let broker = Broker::start(&[]);
    let topic = broker.topic("orders", 1);
    let moved = broker.fault(json!({"api": "Produce", "topic": topic, "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}));
    publish(broker.bootstrap().into(), topic.clone(), "order 1").await.unwrap();
    assert_eq!(moved.hits(), 2);
    assert_eq!(broker.values(&topic), ["order 1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_not_there_before_it_is_written() {
    let broker = Broker::start(&[]);
    let topic = broker.topic("orders", 1);
    let hold = broker.hold(json!({"api": "Produce", "topic": topic}));
    let publishing = tokio::spawn(publish(broker.bootstrap().into(), topic.clone(), "order 1"));
    hold.wait(1);
    assert!(broker.values(&topic).is_empty());
    hold.release();
    publishing.await.unwrap().unwrap();
    assert_eq!(broker.values(&topic), ["order 1"]);
    assert_eq!(broker.requests(json!({"api": "Produce", "client_id": "shop"})).len(), 1);
}

#[test]
fn a_misspelled_field_is_an_error() {
    let broker = Broker::start(&[]);
    let refused = broker.try_fault(json!({"api": "Produce", "eror": 5})).err().expect("a refusal");
    assert_eq!((refused.status, refused.detail.as_str()), (422, "there is no field 'eror'; did you mean error?"));
    assert_eq!(broker.wait_group("no body/ö", json!({"wait": "absent"}))["members"], json!([]));
}
