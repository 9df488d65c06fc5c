//! XGBoost through its C interface, loaded when a trainer is opened.
//!
//! The only module with unsafe code. It promises that no raw handle leaves it: a matrix or a
//! booster is freed when it is dropped, every length handed over is that of the slice it belongs
//! to, and every failing call becomes a [`TrainError`] with the library's own words. Everything
//! runs on the calling thread: on two cores OpenMP's barriers cost up to ten times what they win.
#![expect(unsafe_code, reason = "the one door to libxgboost's C interface")]

use std::{
    error::Error,
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem::ManuallyDrop,
    path::Path,
    ptr,
    sync::Arc,
};

use libloading::Library;

use crate::TrainError;

type Handle = *mut c_void;

/// Result of a margin prediction: rows in order, one value each.
const PREDICT: &CStr = c"{\"type\": 1, \"training\": false, \"iteration_begin\": 0, \
    \"iteration_end\": 0, \"strict_shape\": false}";
const SAVE: &CStr = c"{\"format\": \"json\"}";
const LABEL: &CStr = c"label";

/// The functions used, with the signatures of XGBoost's `c_api.h`; `bst_ulong` is 64 bits wide.
struct Functions {
    last_error: unsafe extern "C" fn() -> *const c_char,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int),
    matrix_create: unsafe extern "C" fn(*const f32, u64, u64, f32, *mut Handle) -> c_int,
    matrix_set: unsafe extern "C" fn(Handle, *const c_char, *const f32, u64) -> c_int,
    matrix_free: unsafe extern "C" fn(Handle) -> c_int,
    booster_create: unsafe extern "C" fn(*const Handle, u64, *mut Handle) -> c_int,
    booster_set: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int,
    booster_update: unsafe extern "C" fn(Handle, c_int, Handle) -> c_int,
    booster_save:
        unsafe extern "C" fn(Handle, *const c_char, *mut u64, *mut *const c_char) -> c_int,
    booster_predict: unsafe extern "C" fn(
        Handle,
        Handle,
        *const c_char,
        *mut *const u64,
        *mut u64,
        *mut *const f32,
    ) -> c_int,
    booster_free: unsafe extern "C" fn(Handle) -> c_int,
    /// Never unloaded: its OpenMP threads and thread-local state may outlive the last handle.
    _library: ManuallyDrop<Library>,
}

impl Functions {
    fn resolve(library: Library) -> Result<Self, libloading::Error> {
        // SAFETY: each field's type is the declaration of that function in XGBoost's c_api.h, whose
        // C interface is stable, and the library is kept loaded for the rest of the process.
        unsafe {
            Ok(Self {
                last_error: *library.get("XGBGetLastError")?,
                version: *library.get("XGBoostVersion")?,
                matrix_create: *library.get("XGDMatrixCreateFromMat")?,
                matrix_set: *library.get("XGDMatrixSetFloatInfo")?,
                matrix_free: *library.get("XGDMatrixFree")?,
                booster_create: *library.get("XGBoosterCreate")?,
                booster_set: *library.get("XGBoosterSetParam")?,
                booster_update: *library.get("XGBoosterUpdateOneIter")?,
                booster_save: *library.get("XGBoosterSaveModelToBuffer")?,
                booster_predict: *library.get("XGBoosterPredictFromDMatrix")?,
                booster_free: *library.get("XGBoosterFree")?,
                _library: ManuallyDrop::new(library),
            })
        }
    }

    /// Turns the status of a call into a result.
    fn done(&self, call: &'static str, status: c_int) -> Result<(), TrainError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes nothing and returns a C string of this thread, or null.
        let reason = unsafe {
            let text = (self.last_error)();
            if text.is_null() {
                "no reason given".into()
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        // The library appends a stack trace, which names addresses only.
        let reason = reason.split("Stack trace").next().unwrap_or_default().trim().to_owned();
        Err(TrainError::Xgboost { call, reason })
    }
}

/// A loaded libxgboost.
#[derive(Clone)]
pub(crate) struct Xgboost(Arc<Functions>);

impl Xgboost {
    /// Loads the library.
    pub(crate) fn load(path: &Path) -> Result<Self, TrainError> {
        // SAFETY: loading runs the library's initialisers. The path is the operator's or the one
        // that `make native` fills from a pinned and hashed release.
        let loaded = unsafe { Library::new(path) }.and_then(Functions::resolve);
        loaded.map(|functions| Self(Arc::new(functions))).map_err(|error| TrainError::Library {
            reason: in_full(&error),
            looked: path.display().to_string(),
        })
    }

    /// Version of the library.
    pub(crate) fn version(&self) -> (i32, i32, i32) {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three valid places for an int each.
        unsafe { (self.0.version)(&raw mut major, &raw mut minor, &raw mut patch) };
        (major, minor, patch)
    }

    /// A matrix of rows with so many columns; NaN is missing.
    pub(crate) fn matrix(&self, values: &[f32], columns: usize) -> Result<Matrix, TrainError> {
        let rows = values.len().checked_div(columns).unwrap_or_default();
        let mut handle = ptr::null_mut();
        // SAFETY: rows x columns values can be read at the pointer, and the call copies them.
        let status = unsafe {
            let (rows, columns) = (rows as u64, columns as u64);
            (self.0.matrix_create)(values.as_ptr(), rows, columns, f32::NAN, &raw mut handle)
        };
        self.0.done("XGDMatrixCreateFromMat", status)?;
        Ok(Matrix { functions: Arc::clone(&self.0), handle, rows })
    }

    /// An untrained booster for a matrix.
    pub(crate) fn booster(
        &self,
        matrix: &Matrix,
        parameters: &[(&str, String)],
    ) -> Result<Booster, TrainError> {
        let mut handle = ptr::null_mut();
        // SAFETY: one live matrix handle at the pointer, as the length says.
        let status =
            unsafe { (self.0.booster_create)(&raw const matrix.handle, 1, &raw mut handle) };
        self.0.done("XGBoosterCreate", status)?;
        let booster = Booster { functions: Arc::clone(&self.0), handle };
        for (name, value) in parameters {
            booster.set(name, value)?;
        }
        Ok(booster)
    }
}

/// What the loader said, with what the system said to it.
fn in_full(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", in_full(source)),
        None => error.to_string(),
    }
}

/// Rows, and their labels when they are to be learned.
pub(crate) struct Matrix {
    functions: Arc<Functions>,
    handle: Handle,
    rows: usize,
}

impl Matrix {
    /// Sets what the rows are to predict.
    pub(crate) fn label(&self, labels: &[f32]) -> Result<(), TrainError> {
        // SAFETY: the handle is live, and so many labels can be read; the call copies them and
        // refuses a number of them that is not the number of rows.
        let status = unsafe {
            let count = labels.len() as u64;
            (self.functions.matrix_set)(self.handle, LABEL.as_ptr(), labels.as_ptr(), count)
        };
        self.functions.done("XGDMatrixSetFloatInfo", status)
    }
}

impl Drop for Matrix {
    fn drop(&mut self) {
        // SAFETY: the handle came from the matching create call and is freed nowhere else.
        unsafe { (self.functions.matrix_free)(self.handle) };
    }
}

/// A model in training.
pub(crate) struct Booster {
    functions: Arc<Functions>,
    handle: Handle,
}

impl Booster {
    fn set(&self, name: &str, value: &str) -> Result<(), TrainError> {
        let text = |text: &str| {
            CString::new(text).map_err(|error| TrainError::Xgboost {
                call: "XGBoosterSetParam",
                reason: error.to_string(),
            })
        };
        let (name, value) = (text(name)?, text(value)?);
        // SAFETY: a live handle and two C strings that outlive the call.
        let status =
            unsafe { (self.functions.booster_set)(self.handle, name.as_ptr(), value.as_ptr()) };
        self.functions.done("XGBoosterSetParam", status)
    }

    /// Adds the tree of one iteration.
    pub(crate) fn update(&self, iteration: usize, matrix: &Matrix) -> Result<(), TrainError> {
        let iteration = c_int::try_from(iteration).unwrap_or(c_int::MAX);
        // SAFETY: two live handles of the same library.
        let status =
            unsafe { (self.functions.booster_update)(self.handle, iteration, matrix.handle) };
        self.functions.done("XGBoosterUpdateOneIter", status)
    }

    /// The model as JSON.
    pub(crate) fn save(&self) -> Result<Vec<u8>, TrainError> {
        let (mut length, mut bytes) = (0, ptr::null());
        // SAFETY: a live handle, a C string, and valid places for the two results.
        let status = unsafe {
            let places = (&raw mut length, &raw mut bytes);
            (self.functions.booster_save)(self.handle, SAVE.as_ptr(), places.0, places.1)
        };
        self.functions.done("XGBoosterSaveModelToBuffer", status)?;
        // SAFETY: the call succeeded, so that many bytes, owned by the booster until its next call,
        // can be read; they are copied at once.
        Ok(unsafe { copied(bytes.cast::<u8>(), length) })
    }

    /// The sum of the leaves for every row of a matrix.
    pub(crate) fn predict(&self, matrix: &Matrix) -> Result<Vec<f32>, TrainError> {
        let (mut shape, mut dimensions, mut values) = (ptr::null(), 0, ptr::null());
        // SAFETY: two live handles, a C string, and valid places for the three results.
        let status = unsafe {
            let places = (&raw mut shape, &raw mut dimensions, &raw mut values);
            let (predict, config) = (self.functions.booster_predict, PREDICT.as_ptr());
            predict(self.handle, matrix.handle, config, places.0, places.1, places.2)
        };
        self.functions.done("XGBoosterPredictFromDMatrix", status)?;
        // SAFETY: the call succeeded, so the shape has that many dimensions and the values are as
        // many as their product; both are owned by the booster until its next call, and copied.
        let values = unsafe { copied(values, copied(shape, dimensions).iter().product()) };
        if values.len() == matrix.rows {
            return Ok(values);
        }
        let reason = format!("{} values for {} rows", values.len(), matrix.rows);
        Err(TrainError::Xgboost { call: "XGBoosterPredictFromDMatrix", reason })
    }
}

impl Drop for Booster {
    fn drop(&mut self) {
        // SAFETY: the handle came from the matching create call and is freed nowhere else.
        unsafe { (self.functions.booster_free)(self.handle) };
    }
}

/// A copy of what a C call left behind.
///
/// # Safety
/// Unless the length is zero, so many values can be read at the pointer.
unsafe fn copied<T: Copy>(values: *const T, length: u64) -> Vec<T> {
    match usize::try_from(length) {
        // SAFETY: the caller's promise.
        Ok(length) if length > 0 => unsafe { std::slice::from_raw_parts(values, length) }.to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_carries_the_words_of_the_library() {
        let xgboost = crate::synthetic::xgboost();
        assert!(xgboost.version().0 >= 2, "{:?}", xgboost.version());
        let matrix = xgboost.matrix(&[1.0, f32::NAN, 3.0, 4.0], 2).unwrap();
        matrix.label(&[1.0, 2.0]).unwrap();
        let wrong = [("objective", "reg:nothing".to_owned())];
        let refused = xgboost.booster(&matrix, &wrong).and_then(|b| b.update(0, &matrix));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("reg:nothing") && !error.contains("Stack trace"), "{error}");
        let infinite = matrix.label(&[f32::INFINITY, 0.0]);
        assert!(
            infinite.is_err() || xgboost.booster(&matrix, &[]).unwrap().update(0, &matrix).is_err()
        );
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_its_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Xgboost::load(file.path()).err().unwrap().to_string();
        assert!(error.contains(&file.path().display().to_string()), "{error}");
        let other = Xgboost::load(Path::new("libc.so.6")).err().unwrap().to_string();
        assert!(other.contains("XGBGetLastError"), "{other}");
    }
}
