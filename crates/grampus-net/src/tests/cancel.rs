//! What happens where a future is dropped half way.

use std::time::Duration;

use bytes::Bytes;

use super::{Over, SHORT, pair, pairs, run};
use crate::{Frame, Limits, Memory, NetError, memory_pair};

#[test]
fn a_receive_that_is_dropped_again_and_again_loses_nothing() {
    run(async {
        for (mut a, mut b) in pairs(&Limits::default()).await {
            let make = |number: u32| {
                let memory = Memory::create(3_000_000).unwrap();
                memory.write_at(&number.to_le_bytes(), 2_999_990).unwrap();
                let parts = vec![Bytes::from(vec![number as u8; 500_000])];
                Frame::message(&number)
                    .unwrap()
                    .with_parts(parts)
                    .with_memory(memory)
            };
            let send = async {
                for number in 0..10 {
                    a.sender.send(make(number)).await.unwrap();
                }
            };
            let receive = async {
                let mut number = 0u32;
                while number < 10 {
                    let wait = Duration::from_micros(u64::from(number % 3) * 50);
                    let Ok(got) = tokio::time::timeout(wait, b.receiver.recv()).await else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    let got = got.unwrap().unwrap();
                    assert_eq!(got.read::<u32>().unwrap(), number);
                    assert_eq!(got.parts[0], vec![number as u8; 500_000]);
                    let mut bytes = [0; 4];
                    got.memory.unwrap().read_at(&mut bytes, 2_999_990).unwrap();
                    assert_eq!(u32::from_le_bytes(bytes), number);
                    number += 1;
                }
            };
            tokio::join!(send, receive);
        }
    });
}

#[test]
fn a_send_that_is_dropped_half_way_says_so_at_the_next() {
    run(async {
        for over in [Over::Unix, Over::Tcp] {
            let (mut a, mut b) = pair(over, &SHORT).await;
            let large = Frame::default().with_parts(vec![Bytes::from(vec![1; 1 << 20])]);
            // Nobody reads: the sockets fill up after a few of these.
            while tokio::time::timeout(Duration::from_millis(50), a.sender.send(large.clone()))
                .await
                .is_ok()
            {}
            let error = a.sender.send(Frame::default()).await.unwrap_err();
            assert!(matches!(error, NetError::Torn { .. }), "{error}");
            assert!(error.is_transient());
            drop(a);
            let error = loop {
                match b.receiver.recv().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("a cut frame looked like a clean end"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, NetError::Closed { .. }), "{error}");
        }
    });
}

#[test]
fn a_dropped_end_is_the_end_for_the_other() {
    run(async {
        let (a, mut b) = memory_pair("a", "b");
        drop(a);
        assert!(b.receiver.recv().await.unwrap().is_none());
        assert!(matches!(
            b.sender.send(Frame::default()).await,
            Err(NetError::Closed { .. })
        ));

        let (a, mut b) = pair(Over::Unix, &SHORT).await;
        drop(a);
        assert!(b.receiver.recv().await.unwrap().is_none());
        assert!(matches!(
            b.sender.send(Frame::default()).await,
            Err(NetError::Closed { .. })
        ));

        let (a, mut b) = pair(Over::Tcp, &SHORT).await;
        drop(a);
        assert!(matches!(b.receiver.recv().await, Err(NetError::Closed { .. })));
    });
}
