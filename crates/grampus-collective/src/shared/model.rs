//! The words and the slots under a model checker, which tries all orders in which threads can run and all values that
//! they can read. Planted mistakes show that it would find real ones.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::word::{Word, publish, reached, sleep_until};

/// A word, and what the kernel keeps for those who sleep on it.
#[derive(Default)]
struct Futex {
    value: AtomicU32,
    list: Mutex<List>,
    bell: Condvar,
}

#[derive(Default)]
struct List {
    /// How often sleepers were woken.
    woken: u32,
    /// Nobody will wake anyone from here on.
    over: bool,
    /// Sleepers that were still asleep then. The checker itself would notice a deadlock, but cannot clean up after it.
    lost: u32,
}

impl Futex {
    fn end(&self) {
        self.list.lock().unwrap().over = true;
        self.bell.notify_all();
    }
}

/// A futex as one side uses it: with its fence, or with the mistake of having left it out.
struct View<'a, const FENCED: bool>(&'a Futex);

impl<const FENCED: bool> Word for View<'_, FENCED> {
    fn load(&self, order: Ordering) -> u32 {
        self.0.value.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.0.value.store(value, order);
    }

    fn add(&self, value: u32, order: Ordering) {
        self.0.value.fetch_add(value, order);
    }

    fn fence() {
        if FENCED {
            fence(Ordering::SeqCst);
        }
    }

    /// Without a limit, which would hide a wake-up that gets lost.
    fn wait(&self, expected: u32, _: Duration) {
        let mut list = self.0.list.lock().unwrap();
        if self.0.value.load(Ordering::Relaxed) != expected {
            return;
        }
        let before = list.woken;
        while list.woken == before && !list.over {
            list = self.0.bell.wait(list).unwrap();
        }
        list.lost += u32::from(list.woken == before);
    }

    fn wake(&self) {
        self.0.list.lock().unwrap().woken += 1;
        self.0.bell.notify_all();
    }
}

/// `switches` is how often a thread that could go on may have to let another go first. Few find what there is to be
/// found; without a bound it takes hours.
fn check(switches: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.max_branches = 10_000;
    // The longest model takes some seconds; this ends one that grew without notice.
    builder.max_duration = Some(Duration::from_secs(60));
    builder.check(model);
}

/// One member moves the word, and `sleepers` others wait for it.
fn wakes<const PUBLISHER: bool, const SLEEPER: bool>(sleepers: usize) {
    check(3, move || {
        let shared = Arc::new((Futex::default(), Futex::default(), UnsafeCell::new(0)));
        let sleep = |shared: Arc<(Futex, Futex, UnsafeCell<u32>)>| {
            let (word, asleep, told) = &*shared;
            let (word, asleep) = (View::<SLEEPER>(word), View::<SLEEPER>(asleep));
            while !reached(word.load(Ordering::Acquire), 1) {
                sleep_until(&word, &asleep, 1, Duration::MAX);
            }
            // SAFETY: written before the word was moved; the checker watches.
            told.with(|told| assert_eq!(unsafe { *told }, 7));
        };
        let threads: Vec<_> = (0..sleepers)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || sleep(shared))
            })
            .collect();
        let (word, asleep, told) = &*shared;
        // SAFETY: nobody reads before the word is moved; the checker watches.
        told.with_mut(|told| unsafe { *told = 7 });
        publish(&View::<PUBLISHER>(word), &View::<PUBLISHER>(asleep), 1);
        word.end();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(word.list.lock().unwrap().lost, 0, "a wake-up was lost");
    });
}

#[test]
fn no_wake_up_is_lost() {
    wakes::<true, true>(1);
    wakes::<true, true>(2);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn without_the_fence_of_who_moves_the_word_a_wake_up_is_lost() {
    wakes::<false, true>(1);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn without_the_fence_of_who_sleeps_a_wake_up_is_lost() {
    wakes::<true, false>(1);
}

/// What one member owns in shared memory: two words used in turn, and slots of which each has a column for what it
/// brings and a front for what it sums up.
struct Member<const SLOTS: usize> {
    words: [Futex; 2],
    sleepers: Futex,
    slots: [(UnsafeCell<u32>, UnsafeCell<u32>); SLOTS],
}

impl<const SLOTS: usize> Member<SLOTS> {
    fn new() -> Self {
        Self {
            words: Default::default(),
            sleepers: Futex::default(),
            slots: std::array::from_fn(|_| (UnsafeCell::new(0), UnsafeCell::new(0))),
        }
    }
}

fn meet<const SLOTS: usize>(members: &[Member<SLOTS>], me: usize, phase: u32) {
    let turn = phase as usize & 1;
    let mine = &members[me];
    publish(
        &View::<true>(&mine.words[turn]),
        &View::<true>(&mine.sleepers),
        phase,
    );
    for member in members {
        let (word, sleepers) = (View::<true>(&member.words[turn]), View::<true>(&member.sleepers));
        while !reached(word.load(Ordering::Acquire), phase) {
            sleep_until(&word, &sleepers, phase, Duration::MAX);
        }
    }
}

fn write(place: &UnsafeCell<u32>, value: u32) {
    // SAFETY: by the rule that is checked; the checker ends the test where it does not hold.
    place.with_mut(|place| unsafe { *place = value });
}

fn read(place: &UnsafeCell<u32>) -> u32 {
    // SAFETY: as above.
    place.with(|place| unsafe { *place })
}

/// Members post, meet and read, turn after turn. In owned turns each writes a sum as well, meets, and collects.
fn turns<const SLOTS: usize>(size: usize, owned: &'static [bool], switches: usize) {
    check(switches, move || {
        let members: Arc<Vec<Member<SLOTS>>> = Arc::new((0..size).map(|_| Member::new()).collect());
        let take_part = move |members: &[Member<SLOTS>], me: usize| {
            let mut phase = 0;
            for (turn, owned) in owned.iter().enumerate() {
                let value = |rank: usize| (10 * turn + rank) as u32;
                let slot = |rank: usize| &members[rank].slots[turn % SLOTS];
                let others = || (0..size).filter(|rank| *rank != me);
                write(&slot(me).0, value(me));
                phase += 1;
                meet(members, me, phase);
                assert!(others().all(|rank| read(&slot(rank).0) == value(rank)));
                if *owned {
                    write(&slot(me).1, value(me));
                    phase += 1;
                    meet(members, me, phase);
                    assert!(others().all(|rank| read(&slot(rank).1) == value(rank)));
                }
            }
        };
        let threads: Vec<_> = (1..size)
            .map(|me| {
                let members = Arc::clone(&members);
                thread::spawn(move || take_part(&members, me))
            })
            .collect();
        take_part(&members, 0);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn two_slots_are_enough() {
    turns::<2>(2, &[false; 3], 3);
    turns::<2>(2, &[true, false, true], 3);
}

#[test]
fn two_slots_are_enough_for_three_members() {
    turns::<2>(3, &[false; 3], 1);
}

#[test]
#[should_panic(expected = "ausality violation")]
fn one_slot_is_not_enough() {
    turns::<1>(2, &[false; 3], 3);
}
