//! Protobuf's wire format: fields to bytes and back.
//!
//! Only what an ONNX file uses; no groups, which have long been deprecated.

/// The bytes are no protobuf, or end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a protobuf message")]
pub struct WireError;

/// A message under construction. A field is written when its method is called.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// The bytes of the message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// An integer. A negative one takes ten bytes, as protobuf has it for `int64`.
    pub fn int(&mut self, field: u64, value: i64) -> &mut Self {
        self.raw_varint(field << 3);
        self.raw_varint(value as u64);
        self
    }

    /// Bytes, which are also strings and packed numbers.
    pub fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.raw_varint(field << 3 | 2);
        self.raw_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// A string.
    pub fn text(&mut self, field: u64, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    /// A message within this one.
    pub fn message(&mut self, field: u64, inner: &Self) -> &mut Self {
        self.bytes(field, &inner.0)
    }

    /// A list of integers, packed.
    pub fn ints(&mut self, field: u64, values: impl IntoIterator<Item = i64>) -> &mut Self {
        let mut packed = Self::default();
        for value in values {
            packed.raw_varint(value as u64);
        }
        self.message(field, &packed)
    }

    /// A list of floats, packed.
    pub fn floats(&mut self, field: u64, values: impl IntoIterator<Item = f32>) -> &mut Self {
        let packed: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
        self.bytes(field, &packed)
    }
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// An integer.
    Varint(u64),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// Eight bytes.
    Fixed64,
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The bytes, if it is bytes.
    ///
    /// # Errors
    /// When it is something else.
    pub fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError),
        }
    }

    /// The text, if it is text.
    ///
    /// # Errors
    /// When it is something else.
    pub fn text(self) -> Result<String, WireError> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| WireError)
    }

    /// The integer, if it is one.
    ///
    /// # Errors
    /// When it is something else.
    pub fn int(self) -> Result<i64, WireError> {
        match self {
            Self::Varint(value) => Ok(value as i64),
            _ => Err(WireError),
        }
    }

    /// One integer or a packed list of them, appended.
    ///
    /// # Errors
    /// When it is something else.
    pub fn ints(self, into: &mut Vec<i64>) -> Result<(), WireError> {
        match self {
            Self::Varint(value) => into.push(value as i64),
            Self::Bytes(mut bytes) => {
                while !bytes.is_empty() {
                    into.push(varint(&mut bytes)? as i64);
                }
            }
            _ => return Err(WireError),
        }
        Ok(())
    }

    /// One float or a packed list of them, appended.
    ///
    /// # Errors
    /// When it is something else.
    pub fn floats(self, into: &mut Vec<f32>) -> Result<(), WireError> {
        match self {
            Self::Fixed32(bytes) => into.push(f32::from_le_bytes(bytes)),
            Self::Bytes(bytes) => {
                let (values, rest) = bytes.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(WireError);
                }
                into.extend(values.iter().map(|value| f32::from_le_bytes(*value)));
            }
            _ => return Err(WireError),
        }
        Ok(())
    }
}

/// The fields of a message, in the order of its bytes.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = field(&mut self.0);
        if read.is_err() {
            self.0 = &[];
        }
        Some(read)
    }
}

fn field<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Value<'a>), WireError> {
    let key = varint(bytes)?;
    let value = match key & 7 {
        0 => Value::Varint(varint(bytes)?),
        1 => {
            bytes.split_off(..8).ok_or(WireError)?;
            Value::Fixed64
        }
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| WireError)?;
            Value::Bytes(bytes.split_off(..length).ok_or(WireError)?)
        }
        5 => {
            let four = bytes.split_off(..4).ok_or(WireError)?;
            Value::Fixed32(four.try_into().map_err(|_| WireError)?)
        }
        _ => return Err(WireError),
    };
    Ok((key >> 3, value))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first().ok_or(WireError)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(WireError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_bytes_of_the_specification() {
        // The examples of protobuf's own description of its encoding.
        let mut message = Message::default();
        message.int(1, 150).text(2, "testing").ints(6, [3, 270, 86942]);
        let expected = b"\x08\x96\x01\x12\x07testing\x32\x06\x03\x8e\x02\x9e\xa7\x05";
        assert_eq!(message.into_bytes(), expected);
    }

    #[test]
    fn numbers_survive_packed_and_unpacked() {
        let mut message = Message::default();
        message.ints(1, [0, -1, i64::MIN, i64::MAX]).int(1, -7).floats(2, [1.5, -0.0, f32::MIN]);
        let (mut ints, mut floats) = (vec![], vec![]);
        for field in Fields(&message.into_bytes()) {
            match field.unwrap() {
                (1, value) => value.ints(&mut ints).unwrap(),
                (_, value) => value.floats(&mut floats).unwrap(),
            }
        }
        assert_eq!(ints, [0, -1, i64::MIN, i64::MAX, -7]);
        assert_eq!(floats.map_bits(), [1.5, -0.0, f32::MIN].map(f32::to_bits));
    }

    trait Bits {
        fn map_bits(&self) -> Vec<u32>;
    }

    impl Bits for Vec<f32> {
        fn map_bits(&self) -> Vec<u32> {
            self.iter().map(|value| value.to_bits()).collect()
        }
    }

    #[test]
    fn bytes_that_end_early_are_refused_and_end_the_reading() {
        for broken in [&b"\x08"[..], b"\x12\x05abc", b"\x0d\x01", b"\x0b", &[0xff; 11]] {
            let read: Vec<_> = Fields(broken).collect();
            assert_eq!(read.len(), 1);
            assert!(read[0].is_err(), "{broken:?}");
        }
    }
}
