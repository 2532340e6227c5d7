//! Weights of a network, by name.

use std::collections::HashMap;

use crate::error::NativeError;
use crate::network::Network;
use crate::real::Real;
use crate::shape::Shape;

/// A counter that PyTorch keeps beside batch norm, and nobody needs.
const COUNTER: &str = ".num_batches_tracked";

impl<T: Real> Network<T> {
    /// Name, shape and numbers of all parameters and buffers, those of the first layer first.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[usize], &[T])> {
        let parameters = self
            .parameter_places()
            .iter()
            .map(|placed| (placed, self.parameters()));
        let buffers = self.buffer_places().iter().map(|placed| (placed, self.buffers()));
        let mut all: Vec<_> = parameters.chain(buffers).collect();
        let rank: HashMap<&str, usize> = self
            .model()
            .nodes
            .iter()
            .enumerate()
            .map(|(rank, node)| (node.name.as_str(), rank))
            .collect();
        all.sort_by_key(|(placed, _)| rank.get(placed.node.as_str()).copied());
        all.into_iter().map(|(placed, whole)| {
            (
                placed.name.as_str(),
                &placed.shape[..],
                &whole[placed.place.clone()],
            )
        })
    }

    /// Takes weights by name: all of its own must be there, with their shapes, and no others.
    pub fn load(&mut self, weights: &[(&str, &[usize], &[T])]) -> Result<(), NativeError> {
        self.check_names(weights)?;
        let given: HashMap<&str, &[T]> = weights.iter().map(|(name, _, values)| (*name, *values)).collect();
        for trained in [true, false] {
            let (places, whole) = self.places_mut(trained);
            for placed in places {
                if let Some(values) = given.get(placed.name.as_str()) {
                    whole[placed.place.clone()].copy_from_slice(values);
                }
            }
        }
        Ok(())
    }

    fn check_names(&self, weights: &[(&str, &[usize], &[T])]) -> Result<(), NativeError> {
        let own: HashMap<&str, &[usize]> = self.tensors().map(|(name, shape, _)| (name, shape)).collect();
        let given: HashMap<&str, &[usize]> = weights.iter().map(|(name, shape, _)| (*name, *shape)).collect();
        let lacking = own
            .keys()
            .filter(|name| !given.contains_key(*name))
            .map(|name| (*name).to_owned());
        let besides = given
            .keys()
            .filter(|name| !own.contains_key(*name) && !name.ends_with(COUNTER));
        let other = own.iter().filter_map(|(name, shape)| {
            let found = given.get(name).filter(|found| found != &shape)?;
            Some(format!(
                "{name} {} for {}",
                Shape::from(*found),
                Shape::from(*shape)
            ))
        });
        let wrong = [
            ("lacks", lacking.collect::<Vec<String>>()),
            ("has besides", besides.map(|name| (*name).to_owned()).collect()),
            ("has other shapes", other.collect()),
        ];
        let said: Vec<String> = wrong
            .into_iter()
            .filter_map(|(what, names)| listed(what, names))
            .collect();
        match said.is_empty() {
            true => Ok(()),
            false => Err(NativeError::Weights(format!(
                "these weights are of another model: what was given {}",
                said.join("; ")
            ))),
        }
    }
}

fn listed(what: &str, mut names: Vec<String>) -> Option<String> {
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
    let more = if names.len() > 5 { " …" } else { "" };
    names.truncate(5);
    Some(format!("{what} {}{more}", names.join(", ")))
}
