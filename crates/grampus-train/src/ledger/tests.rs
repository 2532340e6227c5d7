//! Runs that lose workers are written down and held against the promise; then the records are spoilt.

use std::fs;
use std::path::Path;

use grampus_core::{Order, Random};
use proptest::prelude::*;

use super::*;
use crate::plan::{lanes_of, rows_of};

const ROWS: u64 = 23;
const BATCH: u64 = 6;
const LANES: u32 = 3;
const EPOCHS: u64 = 2;
const STEPS: u64 = ROWS.div_ceil(BATCH);

fn at(epoch: u64, step: u64) -> Place {
    Place { epoch, step }
}

fn after(place: Place) -> Place {
    if place.step + 1 == STEPS {
        at(place.epoch + 1, 0)
    } else {
        at(place.epoch, place.step + 1)
    }
}

fn page(attempt: u64, rank: u32, workers: u32, begin: Place) -> Page {
    Page {
        head: Head {
            format: 1,
            attempt,
            rank,
            workers,
            lanes: LANES,
            seed: 5,
            batch_size: BATCH,
            at: begin,
        },
        lines: Vec::new(),
    }
}

fn open(place: Place) -> Line {
    Line::Open(Open {
        at: place,
        rows: Some(ROWS),
        of: Some(ROWS),
    })
}

fn begun(place: Place, rank: u32, workers: u32) -> Line {
    let order = Order::new(5, place.epoch, ROWS);
    let first = place.step * BATCH;
    let lanes = lanes_of(rank as usize, workers as usize, LANES);
    let part = |lane| {
        let mine = rows_of(lane, LANES, BATCH, BATCH.min(ROWS - first));
        let (start, count) = (first + mine.start, mine.end - mine.start);
        Part {
            lane,
            count,
            first: (count > 0).then_some(start),
            rows: Some(
                (start..start + count)
                    .map(|place| order.row(place) as i64)
                    .collect(),
            ),
            ..Part::default()
        }
    };
    Line::Begun(Begun {
        at: place,
        parts: lanes.map(part).collect(),
    })
}

/// A run whose workers are lost as the random numbers want it, each time going on from what the others have, or from a
/// file where none is left; and how often a step was begun.
fn run(seed: u64) -> (Vec<Page>, u64) {
    let mut random = Random::from_parts(&[seed]);
    let mut draw = move |below: u64| random.next_u64() % below;
    let mut pages = Vec::new();
    let (mut begin, mut times) = (at(0, 0), 0);
    for attempt in 1.. {
        let workers = 1 + draw(3) as u32;
        let mut mine: Vec<Page> = (0..workers)
            .map(|rank| page(attempt, rank, workers, begin))
            .collect();
        let (mut place, mut opened) = (begin, false);
        let next = loop {
            if place.epoch == EPOCHS {
                mine.iter_mut().for_each(|page| page.lines.push(Line::End(place)));
                break None;
            }
            if place.step == 0 || !opened {
                mine.iter_mut().for_each(|page| page.lines.push(open(place)));
                opened = true;
            }
            times += 1;
            let is_last = attempt < 6 && draw(4) == 0;
            // Those that are killed before the step may not have said what they were to use.
            let silent = if is_last && workers > 1 && draw(2) == 0 {
                draw(u64::from(workers)) as usize
            } else {
                9
            };
            for (rank, page) in mine.iter_mut().enumerate().filter(|(rank, _)| *rank != silent) {
                page.lines.push(begun(place, rank as u32, workers));
            }
            if !is_last {
                mine.iter_mut()
                    .for_each(|page| page.lines.push(Line::Done(place)));
                place = after(place);
                continue;
            }
            break Some(lose(&mut mine, place, silent < 9, begin, &mut draw));
        };
        pages.append(&mut mine);
        match next {
            Some(next) => begin = next,
            None => break,
        }
    }
    (pages, times)
}

/// Kills one worker or all within a step; where the run goes on.
fn lose(
    pages: &mut [Page],
    place: Place,
    torn: bool,
    begin: Place,
    draw: &mut impl FnMut(u64) -> u64,
) -> Place {
    let killed = draw(pages.len() as u64) as usize;
    let mut furthest = None;
    for (rank, page) in pages.iter_mut().enumerate() {
        let done = !torn && draw(2) == 0;
        let reached = if done { after(place) } else { place };
        if done && draw(2) == 0 {
            page.lines.push(Line::Done(place));
        }
        if rank != killed {
            page.lines.push(Line::Left(reached));
            furthest = furthest.max(Some(reached));
        }
    }
    furthest.unwrap_or(begin)
}

fn parts(pages: &mut [Page]) -> Vec<&mut Part> {
    let lines = pages.iter_mut().flat_map(|page| &mut page.lines);
    let begun = lines.filter_map(|line| match line {
        Line::Begun(begun) => Some(&mut begun.parts),
        _ => None,
    });
    begun.flatten().filter(|part| part.count > 0).collect()
}

fn texts(audit: &Audit) -> Vec<String> {
    audit.faults.iter().map(ToString::to_string).collect()
}

/// One worker and attempt, no loss.
fn calm() -> Vec<Page> {
    let mut page = page(1, 0, 1, at(0, 0));
    for epoch in 0..EPOCHS {
        page.lines.push(open(at(epoch, 0)));
        for step in 0..STEPS {
            page.lines
                .extend([begun(at(epoch, step), 0, 1), Line::Done(at(epoch, step))]);
        }
    }
    page.lines.push(Line::End(at(EPOCHS, 0)));
    vec![page]
}

proptest! {
    #[test]
    fn whatever_is_killed_each_row_counts_once(seed: u64) {
        let (pages, times) = run(seed);
        let found = audit(&pages);
        prop_assert_eq!(texts(&found), Vec::<String>::new());
        prop_assert_eq!(found.epochs.iter().map(|epoch| epoch.begun).sum::<u64>(), times);
        for epoch in &found.epochs {
            prop_assert_eq!((epoch.rows, epoch.steps, epoch.lanes, epoch.ended), (ROWS, STEPS, LANES, true));
            prop_assert_eq!((epoch.lost, epoch.doubled), (Some(0), Some(0)));
        }
        prop_assert_eq!(found.epochs.len() as u64, EPOCHS);
    }

    #[test]
    fn a_row_that_takes_the_place_of_another_is_found(which: prop::sample::Index, other in 1..ROWS as i64) {
        let mut pages = calm();
        let mut parts = parts(&mut pages);
        let index = which.index(parts.len());
        let row = &mut parts[index].rows.as_mut().unwrap()[0];
        let gone = *row;
        *row = (*row + other) % ROWS as i64;
        let doubled = *row;
        let found = audit(&pages);
        let sums = |of: fn(&EpochAudit) -> Option<u64>| found.epochs.iter().filter_map(of).sum::<u64>();
        prop_assert_eq!((sums(|epoch| epoch.lost), sums(|epoch| epoch.doubled)), (1, 1));
        let said = texts(&found).join("\n");
        let epoch_and = |text: String| said.contains(&text);
        let lost = epoch_and(format!("row {gone} was not used"));
        let twice = epoch_and(format!("row {doubled} was used in step"));
        prop_assert!(lost && twice, "{}", said);
    }

    #[test]
    fn a_part_that_is_missing_is_found(seed: u64, which: prop::sample::Index) {
        let (mut pages, _) = run(seed);
        let count = pages.iter().flat_map(|page| &page.lines).filter(|line| matches!(line, Line::Begun(_))).count();
        let index = which.index(count);
        let mut seen = 0;
        for page in &mut pages {
            page.lines.retain(|line| {
                let is_begun = matches!(line, Line::Begun(_));
                seen += usize::from(is_begun);
                !is_begun || seen != index + 1
            });
        }
        let found = audit(&pages);
        // What was begun in vain proves nothing, and its loss does not either.
        let counts = found.epochs.iter().map(|epoch| epoch.rows).sum::<u64>() == ROWS * EPOCHS;
        prop_assert_eq!(found.is_proof(), counts, "{:?}", texts(&found));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(\\{\"(done|end|begun|head)\":(\\[[0-9]{1,20},[0-9]\\]|null)\\}\n?){0,4}") {
        let _ = Page::parse("any".as_ref(), &text);
    }
}

#[test]
fn a_step_that_two_attempts_did_counts_in_the_later() {
    // Rank 0 did the step and was killed; rank 1 did not, and the step was done again from what it had.
    let mut pages = vec![page(1, 0, 2, at(0, 0)), page(1, 1, 2, at(0, 0))];
    for (rank, page) in pages.iter_mut().enumerate() {
        page.lines
            .extend([open(at(0, 0)), begun(at(0, 0), rank as u32, 2)]);
    }
    pages[0].lines.push(Line::Done(at(0, 0)));
    let mut again = calm().remove(0);
    again.head.attempt = 2;
    pages.push(again);
    let found = audit(&pages);
    assert_eq!(texts(&found), Vec::<String>::new());
    assert_eq!(
        (found.attempts, found.epochs[0].begun, found.epochs[0].steps),
        (2, STEPS + 1, STEPS)
    );
}

#[test]
fn two_attempts_that_both_count_are_doubled_rows() {
    // As if the second had gone on from where the first was, and yet repeated its step.
    let mut pages = calm();
    let mut other = page(2, 0, 1, at(1, STEPS));
    let Line::Begun(mut again) = begun(at(1, 1), 0, 1) else {
        unreachable!()
    };
    again.at = at(1, STEPS);
    other.lines = vec![open(at(1, STEPS)), Line::Begun(again), Line::Done(at(1, STEPS))];
    pages.push(other);
    let found = audit(&pages);
    assert_eq!(found.epochs[1].doubled, Some(BATCH));
    assert!(
        texts(&found)[0].ends_with("was used in step 2 by lane 1, and in step 5 by lane 1"),
        "{:?}",
        texts(&found)
    );
}

#[test]
fn a_lane_that_is_missing_or_driven_twice_is_named() {
    let mut pages = calm();
    if let Line::Begun(begun) = &mut pages[0].lines[1] {
        begun.parts[2].lane = 1;
    }
    assert_eq!(
        texts(&audit(&pages)),
        [
            "epoch 1, step 1: lane 1 was driven twice in attempt 1",
            "epoch 1, step 1: lane 2 is missing, though attempt 1 has done the step",
        ]
    );
}

#[test]
fn steps_that_nobody_did_are_named() {
    let mut pages = calm();
    pages[0]
        .lines
        .retain(|line| *line != Line::Done(at(0, 1)) && *line != Line::Done(at(0, 2)));
    let found = audit(&pages);
    assert_eq!(texts(&found)[0], "epoch 1: nobody has done steps 2 to 3");
    assert_eq!(found.epochs[0].lost, Some(2 * BATCH));
}

#[test]
fn a_run_that_is_cut_off_has_lost_nothing() {
    let mut pages = calm();
    let end = pages[0]
        .lines
        .iter()
        .position(|line| *line == Line::Done(at(1, 1)))
        .unwrap();
    pages[0].lines.truncate(end + 1);
    for ended in [false, true] {
        if ended {
            pages[0].lines.push(Line::End(at(1, 2)));
            // The next call leaves the rest of the epoch out, and goes on once more.
            pages.extend([page(2, 0, 1, at(2, 0)), page(3, 0, 1, at(2, 0))]);
        }
        let found = audit(&pages);
        assert_eq!(texts(&found), Vec::<String>::new());
        let last = &found.epochs[1];
        assert_eq!((last.rows, last.ended, last.lost), (2 * BATCH, false, Some(0)));
    }
}

#[test]
fn a_ledger_that_begins_within_an_epoch_proves_nothing_of_it() {
    let mut pages = calm();
    pages[0].head.at = at(0, 2);
    pages[0].lines.drain(1..5);
    assert_eq!(texts(&audit(&pages))[0], "epoch 1: nobody has done steps 1 to 2");
}

#[test]
fn places_count_where_a_sampler_chooses_rows_or_drops_the_last() {
    // A sampler may choose a row twice; a loader that drops the last batch uses some rows of all.
    for (rows, of) in [(4, None), (4, Some(5))] {
        let mut page = page(1, 0, 1, at(0, 0));
        page.head.lanes = 1;
        let part = |first, rows: &[i64]| Part {
            count: 2,
            first: Some(first),
            rows: Some(rows.to_vec()),
            ..Part::default()
        };
        let drawn: &[i64] = if of.is_none() { &[1, 1] } else { &[4, 0] };
        for (step, part) in [part(0, drawn), part(2, &[3, 1])].into_iter().enumerate() {
            let place = at(0, step as u64);
            let parts = vec![part];
            page.lines.extend([
                Line::Open(Open {
                    at: at(0, 0),
                    rows: Some(rows),
                    of,
                }),
                Line::Begun(Begun { at: place, parts }),
                Line::Done(place),
            ]);
        }
        page.lines.push(Line::End(at(1, 0)));
        let found = audit(&[page.clone()]);
        assert_eq!(texts(&found), Vec::<String>::new());
        page.lines.truncate(3);
        page.lines.push(Line::End(at(1, 0)));
        let found = audit(&[page]);
        assert_eq!(texts(&found), ["epoch 1: places 2 to 3 were not used"]);
        assert_eq!(found.epochs[0].lost, Some(2));
    }
}

#[test]
fn lanes_that_read_for_themselves_are_counted() {
    let mut page = page(1, 0, 1, at(0, 0));
    page.head.lanes = 2;
    let parts = |counts: [u64; 2]| {
        let part = |(lane, count): (usize, u64)| Part {
            lane: lane as u32,
            count,
            ..Part::default()
        };
        counts.into_iter().enumerate().map(part).collect()
    };
    page.lines = vec![
        Line::Open(Open {
            at: at(0, 0),
            rows: None,
            of: None,
        }),
        Line::Begun(Begun {
            at: at(0, 0),
            parts: parts([3, 2]),
        }),
        Line::Done(at(0, 0)),
        Line::Begun(Begun {
            at: at(0, 1),
            parts: parts([0, 0]),
        }),
        Line::End(at(1, 0)),
    ];
    let found = audit(&[page]);
    assert_eq!(texts(&found), Vec::<String>::new());
    let epoch = &found.epochs[0];
    assert_eq!(
        (epoch.rows, epoch.steps, epoch.begun, epoch.lost),
        (5, 1, 1, None)
    );
}

#[test]
fn a_step_whose_rows_were_all_left_out_is_passed_over() {
    let mut pages = calm();
    pages[0].lines.retain(|line| *line != Line::Done(at(0, 1)));
    assert!(!audit(&pages).is_proof());
    if let Line::Begun(begun) = &mut pages[0].lines[3] {
        assert_eq!(begun.at, at(0, 1));
        begun.parts.iter_mut().for_each(|part| part.left_out = part.count);
    }
    let found = audit(&pages);
    assert_eq!(texts(&found), Vec::<String>::new());
    let epoch = &found.epochs[0];
    assert_eq!(
        (epoch.rows, epoch.left_out, epoch.lost),
        (ROWS - BATCH, BATCH, Some(0))
    );
}

fn written(pages: &[Page], run: &Path) {
    fs::create_dir_all(run.join("audit")).unwrap();
    for page in pages {
        let head = Line::Head(page.head.clone());
        let lines = [&head].into_iter().chain(&page.lines);
        let text: String = lines
            .map(|line| serde_json::to_string(line).unwrap() + "\n")
            .collect();
        let name = format!(
            "audit/attempt-{}-rank-{}.jsonl",
            page.head.attempt, page.head.rank
        );
        fs::write(run.join(name), text).unwrap();
    }
}

#[test]
fn files_are_read_and_a_last_line_that_was_cut_off_is_left_out() {
    let run = tempfile::tempdir().unwrap();
    let pages = calm();
    written(&pages, run.path());
    assert_eq!(read(run.path()).unwrap(), pages);
    let path = run.path().join("audit/attempt-1-rank-0.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() - 4]).unwrap();
    fs::write(
        run.path().join("audit/attempt-2-rank-0.jsonl"),
        "{\"head\":{\"form",
    )
    .unwrap();
    let found = read(run.path()).unwrap();
    assert_eq!(found[0].lines, pages[0].lines[..pages[0].lines.len() - 1]);
    assert_eq!(found.len(), 1);
}

#[test]
fn what_is_no_ledger_is_refused_by_file_and_line() {
    let run = tempfile::tempdir().unwrap();
    let error = read(run.path()).unwrap_err().to_string();
    assert!(error.contains("train with fit(audit=True)"), "{error}");
    written(&calm(), run.path());
    let path = run.path().join("audit/attempt-1-rank-0.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, wanted) in [
        ("{\"done\":[0,0]}", "{\"done\":0}", "line 4: "),
        (
            "\"format\":1",
            "\"format\":2",
            "line 1: it has the form 2 and this command reads 1",
        ),
        (
            "\"lane\":2,",
            "\"lane\":3,",
            "line 3: lane 3 is not among the 3 lanes",
        ),
        (
            "\"count\":2,",
            "\"count\":9,",
            "line 3: lane 0 has 9 rows and names 2",
        ),
        (
            "\"count\":2,",
            "\"count\":2,\"range\":[5,4],",
            "line 3: lane 0 has 2 rows and names 5 to 4",
        ),
        (
            "\"count\":2,",
            "\"count\":2,\"left_out\":3,",
            "line 3: lane 0 has 2 rows and leaves out 3",
        ),
        (
            "{\"end\":[2,0]}",
            "{\"end\":[18446744073709551615,0]}",
            "no run has epoch",
        ),
        (
            "{\"head\"",
            "{\"end\":[0,0]}\n{\"head\"",
            "line 1: the head is missing",
        ),
    ] {
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = read(run.path()).unwrap_err().to_string();
        assert!(
            error.contains(wanted) && error.contains("rank-0.jsonl"),
            "{error}"
        );
    }
}
