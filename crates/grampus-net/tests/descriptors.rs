//! A binary of its own: other tests would open and close descriptors meanwhile.

use std::time::Duration;

use grampus_core::{Address, JobId, JobKey, JoinString};
use grampus_net::{Frame, Limits, Listener, Memory, connect, private_dir};

#[expect(clippy::unwrap_used, reason = "a helper of the test")]
fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// One link with a frame each way, and one refusal.
#[expect(clippy::unwrap_used, reason = "a helper of the test")]
async fn cycle(listener: &Listener, join: &JoinString) {
    let limits = Limits::default();
    let answer = async { listener.accept().await.unwrap().handshake().await };
    let (dialer, answered) = tokio::join!(connect(join, "worker-3", &limits), answer);
    let (mut dialer, mut answered) = (dialer.unwrap(), answered.unwrap());
    let frame = Frame::message(&1u8)
        .unwrap()
        .with_memory(Memory::create(10).unwrap());
    dialer.sender.send(frame.clone()).await.unwrap();
    assert!(answered.receiver.recv().await.unwrap().unwrap().memory.is_some());
    answered.sender.send(frame).await.unwrap();
    dialer.sender.close().await;
    assert!(answered.receiver.recv().await.unwrap().is_none());

    let wrong = JoinString {
        key: JobKey::from_bytes([1; 32]),
        ..join.clone()
    };
    let answer = async { listener.accept().await.unwrap().handshake().await };
    let (dialer, answered) = tokio::join!(connect(&wrong, "worker-3", &limits), answer);
    assert!(dialer.is_err() && answered.is_err());
}

#[tokio::test]
async fn a_thousand_links_leave_no_descriptor() {
    let test = async {
        let (job, key) = (JobId(1), JobKey::from_bytes([2; 32]));
        let folder = tempfile::tempdir().unwrap();
        let path = private_dir(&folder.path().join("private"))
            .unwrap()
            .join("socket");
        let limits = Limits::default();
        let unix = Listener::unix(&path, job, key.clone(), &limits).await.unwrap();
        let tcp = Listener::tcp("127.0.0.1:0", job, key.clone(), &limits)
            .await
            .unwrap();
        let port = tcp.local_addr().unwrap().port();
        let by_unix = JoinString {
            job,
            key: key.clone(),
            address: Address::Unix(path),
        };
        let by_tcp = JoinString {
            job,
            key,
            address: Address::Tcp {
                host: "127.0.0.1".into(),
                port,
            },
        };
        cycle(&unix, &by_unix).await;
        cycle(&tcp, &by_tcp).await;
        let before = open();
        for round in 0..1000 {
            cycle(&unix, &by_unix).await;
            if round % 5 == 0 {
                cycle(&tcp, &by_tcp).await;
            }
        }
        assert_eq!(open(), before);
    };
    tokio::time::timeout(Duration::from_secs(60), test)
        .await
        .expect("the test hangs");
}
