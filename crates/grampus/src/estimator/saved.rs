//! Files of weights.

use std::collections::BTreeMap;

use grampus_native::optim::Optimizer;
use grampus_native::{Loss, Model};
use grampus_train::checkpoint::{read_tensors, write_tensors};
use grampus_train::native::State;

use super::Estimator;
use crate::error::{Error, Result};

/// What a file says about the model, for those who want to see it.
const MODEL: &str = "grampus.model";

impl Estimator {
    /// The model of a file that [`Estimator::save`] wrote, with its layers and its weights.
    ///
    /// ```
    /// use grampus::nn::{Linear, Loss, Sequential};
    /// use grampus::{Estimator, optim::Sgd};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = &folder.path().join("model.safetensors").display().to_string();
    /// let made = Estimator::native(Sequential::new().add(Linear::new(2, 2)), Sgd::new(0.1), Loss::Mse);
    /// made.save(path)?;
    /// let again = Estimator::open(path, Sgd::new(0.1), Loss::Mse)?;
    /// assert_eq!(again.network()?.parameters(), made.network()?.parameters());
    /// # Ok::<(), grampus::Error>(())
    /// ```
    pub fn open(path: &str, optimizer: impl Into<Optimizer>, loss: impl Into<Loss>) -> Result<Self> {
        let (_, about) = read_tensors(path)?;
        let Some(model) = about.get(MODEL) else {
            return Err(Error::Asked(format!(
                "{path} does not say which layers its weights are of: make the model, and load() it"
            )));
        };
        let mut estimator = Self::native(Model::from_json(model)?, optimizer, loss);
        estimator.load(path)?;
        Ok(estimator)
    }

    /// Writes the weights to a `.safetensors` file, with the description of the model beside them. PyTorch and Python read it.
    pub fn save(&self, path: &str) -> Result<()> {
        let state = match &self.state {
            Some(state) => state.model.clone(),
            None => State::weights(&self.network()?)?,
        };
        let model =
            serde_json::to_string(&self.spec.model).map_err(|error| Error::Asked(error.to_string()))?;
        let about = BTreeMap::from([("format".to_owned(), "pt".to_owned()), (MODEL.to_owned(), model)]);
        Ok(write_tensors(path, state, &about)?)
    }

    /// Takes weights from a `.safetensors` file: one that [`Estimator::save`] wrote, or a `state_dict` of PyTorch with the same
    /// names.
    ///
    /// ```
    /// use grampus::nn::{Linear, Loss, Sequential};
    /// use grampus::{Estimator, optim::Sgd};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = &folder.path().join("model.safetensors").display().to_string();
    /// let made = |seed| Estimator::native(Sequential::new().add(Linear::new(2, 2)), Sgd::new(0.1), Loss::Mse).seed(seed);
    /// made(1).save(path)?;
    /// let mut other = made(2);
    /// other.load(path)?;
    /// assert_eq!(other.network()?.parameters(), made(1).network()?.parameters());
    /// # Ok::<(), grampus::Error>(())
    /// ```
    pub fn load(&mut self, path: &str) -> Result<()> {
        let (model, _) = read_tensors(path)?;
        let state = State {
            model,
            ..State::default()
        };
        // Whether they fit shows before anything is changed.
        state.load_weights(&mut self.network()?)?;
        self.state = Some(state);
        Ok(())
    }
}
