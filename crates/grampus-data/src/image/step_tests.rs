use super::*;

fn plan(step: &Step, width: u32, height: u32, seed: u64) -> Plan {
    step.plan(&View::whole(width, height), &mut Random::new(seed))
        .unwrap()
}

#[test]
fn the_shorter_side_decides() {
    let step = Step::ResizeShorter { side: 10 };
    assert_eq!(plan(&step, 40, 20, 0).resize, Some((20, 10)));
    assert_eq!(plan(&step, 20, 41, 0).resize, Some((10, 20)));
    assert_eq!(step.size_after(Some((7, 7))), Some((10, 10)));
    assert_eq!(step.size_after(None), None);
}

#[test]
fn the_middle_is_where_torchvision_has_it() {
    // Differences of 1, 3, 5: the half goes to the even number.
    assert_eq!([5, 7, 9].map(|whole| middle(whole, 4)), [0, 2, 2]);
    // Black around what is too small, one more at the end.
    assert_eq!([3, 2, 1].map(|whole| middle(whole, 4)), [0, -1, -1]);
}

#[test]
fn a_random_crop_reaches_both_borders_and_no_further() {
    let step = Step::RandomCrop {
        width: 4,
        height: 4,
        padding: 1,
    };
    let whole = View::whole(4, 4);
    let all: Vec<View> = (0..200).map(|seed| plan(&step, 4, 4, seed).view).collect();
    for left in -1..=1 {
        for top in -1..=1 {
            assert!(all.contains(&whole.crop(left, top, 4, 4)), "{left}, {top}");
        }
    }
    let inside = |view: &View| (-1..=1).any(|x| (-1..=1).any(|y| *view == whole.crop(x, y, 4, 4)));
    assert!(all.iter().all(inside));
}

#[test]
fn a_crop_larger_than_the_image_is_an_error_that_says_both_sizes() {
    let step = Step::RandomCrop {
        width: 8,
        height: 4,
        padding: 1,
    };
    let error = step
        .plan(&View::whole(5, 5), &mut Random::new(0))
        .unwrap_err()
        .to_string();
    assert!(error.contains("7 x 7") && error.contains("8 x 4"), "{error}");
}

#[test]
fn a_random_part_has_the_area_and_the_shape_that_were_asked_for() {
    let whole = View::whole(200, 100);
    for seed in 0..500 {
        let part = random_part(&whole, (0.2, 0.5), (0.75, 4.0 / 3.0), &mut Random::new(seed));
        let (width, height) = (f64::from(part.width), f64::from(part.height));
        let area = width * height / 20_000.0;
        assert!((0.19..0.51).contains(&area), "{area}");
        assert!((0.74..1.36).contains(&(width / height)), "{width} x {height}");
        assert_eq!(part.crop(0, 0, part.width, part.height), part);
    }
    // No square of the whole area fits: the largest in the middle.
    let part = random_part(&whole, (1.0, 1.0), (1.0, 1.0), &mut Random::new(1));
    assert_eq!(part, whole.crop(50, 0, 100, 100));
}

#[test]
fn a_power_is_a_power() {
    for exponent in [0, 1, 1 << 15, 40_000, u16::MAX] {
        let expected = (f64::from(exponent) / 65_536.0 * 1.7_f64.ln()).exp();
        assert!((power(1.7, exponent) - expected).abs() < 1e-12);
    }
}

#[test]
fn a_step_draws_once_whatever_the_image() {
    let part = Step::RandomResizedCrop {
        width: 2,
        height: 2,
        scale: any_scale(),
        ratio: any_ratio(),
    };
    let crop = Step::RandomCrop {
        width: 1,
        height: 1,
        padding: 3,
    };
    for step in [part, crop, Step::FlipHorizontal { probability: 0.3 }] {
        for (width, height) in [(1, 500), (3, 3), (400, 300)] {
            let mut random = Random::new(9);
            step.plan(&View::whole(width, height), &mut random).unwrap();
            let mut once = Random::new(9);
            once.next_u64();
            assert_eq!(random.next_u64(), once.next_u64(), "{step:?}");
        }
    }
}

#[test]
fn flips_are_as_frequent_as_asked() {
    let flips = |probability| {
        let step = Step::FlipHorizontal { probability };
        (0..1000)
            .filter(|seed| plan(&step, 2, 2, *seed).view.mirrored)
            .count()
    };
    assert_eq!(flips(0.0), 0);
    assert_eq!(flips(1.0), 1000);
    assert!((200..300).contains(&flips(0.25)));
}

#[test]
fn steps_with_impossible_numbers_are_refused() {
    let wrong = [
        r#"{"step": "resize", "width": 0, "height": 5}"#,
        r#"{"step": "center_crop", "width": 5, "height": 70000}"#,
        r#"{"step": "random_crop", "width": 5, "height": 5, "padding": 4000000000}"#,
        r#"{"step": "random_resized_crop", "width": 5, "height": 5, "scale": [0.5, 1.5]}"#,
        r#"{"step": "random_resized_crop", "width": 5, "height": 5, "ratio": [2, 1]}"#,
        r#"{"step": "flip_horizontal", "probability": 1.5}"#,
    ];
    for text in wrong {
        let step: Step = serde_json::from_str(text).unwrap();
        assert!(step.problem().is_some(), "{text}");
    }
    assert!(
        serde_json::from_str::<Step>(r#"{"step": "resize", "width": 1, "height": 1, "depth": 1}"#).is_err()
    );
}
