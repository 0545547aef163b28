"""Operators that have no text of their own, each with its reason."""

from operators.table import outside

outside(
    "window",
    "AveragePool Conv ConvTranspose ConvInteger DeformConv CausalConvWithState LpPool MaxPool MaxUnpool LRN Col2Im QLinearConv",
)
outside("resampling", "Resize Upsample GridSample AffineGrid RoiAlign NonMaxSuppression")
outside("recurrent", "GRU LSTM RNN Scan LinearAttention")
outside("scatter", "Scatter ScatterElements ScatterND TensorScatter")
outside("shape", "NonZero Compress Unique Shape Size")
outside(
    "control",
    "If Loop SequenceInsert SequenceMap SplitToSequence OptionalGetElement OptionalHasElement SequenceConstruct SequenceEmpty SequenceAt SequenceLength SequenceErase ConcatFromSequence Optional",
)
outside("text", "RegexFullMatch StringConcat StringNormalizer StringSplit LabelEncoder TfIdfVectorizer TreeEnsemble ImageDecoder")
outside("random", "Bernoulli RandomUniformLike RandomUniform RandomNormal RandomNormalLike")
outside("training", "Adagrad Adam Momentum Gradient")
outside("fourier", "DFT STFT MelWeightMatrix")
outside("quantized", "QLinearMatMul DynamicQuantizeLinear", ulp=0, rounds=True, why="the quotient is rounded as ONNX's own")
outside("primitive", "Acos Asin Atan Det BitCast")
