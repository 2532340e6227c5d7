mod owners;
mod settings;
mod torch;

use std::ops::Range;

/// Tensors of these sizes in a flat buffer, each at a multiple of 64 bytes; how long that is.
fn layout<T>(sizes: &[usize]) -> (Vec<Range<usize>>, usize) {
    let align = 64 / size_of::<T>();
    let mut end = 0;
    let place = |size: &usize| {
        let begin = end;
        end = (begin + size).next_multiple_of(align);
        begin..begin + size
    };
    let tensors = sizes.iter().map(place).collect();
    (tensors, end)
}
