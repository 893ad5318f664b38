// A model's file, as lesson 19 writes it: safetensors, its matrices in whole numbers of 8 or 4 bits.

// The tensors by name, each {dtype, shape, bytes}, and the two texts that lesson 19 puts beside them.
function readSafetensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const { __metadata__: metadata, ...entries } = header;
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(entries))
    tensors[name] = { dtype, shape, bytes: new Uint8Array(buffer, 8 + length + from, to - from) };
  return { tensors, metadata };
}

// bfloat16 is the upper half of a float32.
function widen({ dtype, bytes }) {
  if (dtype !== "BF16") throw new Error(`weights must be BF16, got ${dtype}`);
  const bits = new Uint32Array(bytes.length / 2);
  for (let i = 0; i < bits.length; i++) bits[i] = (bytes[2 * i] | bytes[2 * i + 1] << 8) << 16;
  return new Float32Array(bits.buffer);
}

// Lesson 19: two codes in a byte, the first of two neighbours in its low four bits.
function unpackInt4(packed) {
  const codes = new Uint8Array(2 * packed.length);
  for (let i = 0; i < packed.length; i++) {
    codes[2 * i] = packed[i] & 15;
    codes[2 * i + 1] = packed[i] >> 4;
  }
  return codes;
}

// Lesson 19: weight = scale · (code − zero), with a scale and a zero for each group of neighbours.
function dequantize(codes, scales, zeros, group) {
  const weights = new Float32Array(codes.length);
  for (let i = 0; i < codes.length; i++) {
    const g = Math.floor(i / group);
    weights[i] = scales[g] * (codes[i] - zeros[g]);
  }
  return weights;
}

// The model's sizes, and its weights by the names that they have in lesson 13.
export function readModel(buffer) {
  const { tensors, metadata } = readSafetensors(buffer);
  const weights = {};
  for (const [name, [bits, group]] of Object.entries(JSON.parse(metadata.layers))) {
    const [codes, scales, zeros] = ["codes", "scales", "zeros"].map(part => tensors[`${name}.${part}`]);
    for (const part of ["codes", "scales", "zeros"]) delete tensors[`${name}.${part}`];
    weights[`${name}.weight`] = dequantize(
      bits <= 4 ? unpackInt4(codes.bytes) : codes.bytes, widen(scales), zeros.bytes, group);
  }
  for (const [name, tensor] of Object.entries(tensors)) weights[name] = widen(tensor);
  return { config: JSON.parse(metadata.config), weights };
}
