// Walks the graph behind arrays that were not evaluated and writes one line per array, operands first, with tabs between:
// id, primitive, place among the primitive's results, dtype, shape, numbers of the primitive, ids of operands, bytes in hex.
//
// Only what MLX's headers define is called, so nothing of libmlx is linked. A primitive is cast by its name, which no two
// classes share: most classes have no exported type information.

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "mlx/array.h"
#include "mlx/fast_primitives.h"
#include "mlx/primitives.h"

namespace mx = mlx::core;

// As mlx-c declares it: a pointer to the array.
struct mlx_array {
  void* ctx;
};

extern "C" const uint8_t* mlx_array_data_uint8(mlx_array);

namespace {

// Constants are small; an array of more bytes is written without them.
constexpr size_t kMostBytes = 1 << 16;

const mx::array& array_of(mlx_array handle) {
  return *static_cast<const mx::array*>(handle.ctx);
}

void write(std::string& line, double number) {
  char digits[32];
  auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  if (!line.empty() && line.back() != '\t') {
    line.push_back(',');
  }
  line.append(digits, end);
}

template <typename List>
void write_all(std::string& line, const List& numbers) {
  for (auto number : numbers) {
    write(line, static_cast<double>(number));
  }
}

void write_id(std::string& line, std::uintptr_t id) {
  if (!line.empty() && line.back() != '\t') {
    line.push_back(',');
  }
  line.append(std::to_string(id));
}

const char* dtype_of(const mx::array& array) {
  switch (array.dtype().val()) {
    case mx::Dtype::Val::bool_:
      return "bool";
    case mx::Dtype::Val::uint8:
      return "uint8";
    case mx::Dtype::Val::uint32:
      return "uint32";
    case mx::Dtype::Val::int32:
      return "int32";
    case mx::Dtype::Val::float16:
      return "float16";
    case mx::Dtype::Val::bfloat16:
      return "bfloat16";
    case mx::Dtype::Val::float32:
      return "float32";
    case mx::Dtype::Val::float64:
      return "float64";
    default:
      return "other";
  }
}

// The numbers that tell two uses of one primitive apart; false where the primitive is not known here.
bool write_state(std::string& line, mx::Primitive& primitive) {
  std::string_view name = primitive.name();
  auto is = [&](auto... names) { return ((name == names) || ...); };
  if (is("Arange")) {
    auto [start, stop, step] = static_cast<mx::Arange&>(primitive).state();
    write_all(line, std::vector<double>{start, stop, step});
  } else if (is("ArgSort")) {
    write(line, static_cast<mx::ArgSort&>(primitive).state());
  } else if (is("Concatenate")) {
    write(line, static_cast<mx::Concatenate&>(primitive).state());
  } else if (is("ExpandDims")) {
    write_all(line, static_cast<mx::ExpandDims&>(primitive).state());
  } else if (is("Squeeze")) {
    write_all(line, static_cast<mx::Squeeze&>(primitive).state());
  } else if (is("Gather")) {
    auto [axes, sizes] = static_cast<mx::Gather&>(primitive).state();
    write_all(line, axes);
    write_all(line, sizes);
  } else if (is("GatherAxis")) {
    write(line, static_cast<mx::GatherAxis&>(primitive).state());
  } else if (is("And", "Or", "Sum", "Prod", "Min", "Max")) {
    write_all(line, static_cast<mx::Reduce&>(primitive).state().second);
  } else if (is("Slice")) {
    auto [start, stop, step] = static_cast<mx::Slice&>(primitive).state();
    write_all(line, start);
    write_all(line, stop);
    write_all(line, step);
  } else if (is("SliceUpdate")) {
    auto [reduce, start, stop, step] = static_cast<mx::SliceUpdate&>(primitive).state();
    write_all(line, start);
    write_all(line, stop);
    write_all(line, step);
  } else if (is("Transpose")) {
    write_all(line, static_cast<mx::Transpose&>(primitive).state());
  } else if (is("Softmax")) {
    write(line, static_cast<mx::Softmax&>(primitive).state() ? 1 : 0);
  } else {
    // Told by the name, the operands and the result alone.
    return is(
               "Abs", "Add", "AsType", "BitwiseAnd", "BitwiseInvert", "BitwiseOr", "BitwiseXor", "Broadcast", "BroadcastAxes",
               "Contiguous", "Copy", "Cos", "Cosh", "Divide", "Equal", "Erf", "Exp", "Expm1", "Flatten", "Floor", "Full") ||
        is("Greater", "GreaterEqual", "LeftShift", "Less", "LessEqual", "Log", "Log10", "Log1p", "Log2", "LogicalAnd",
           "LogicalNot", "LogicalOr", "Matmul", "Maximum", "Minimum", "Multiply", "NaNEqual", "Negative", "NotEqual") ||
        is("Power", "Remainder", "Reshape", "RightShift", "Round", "Rsqrt", "Select", "Sigmoid", "Sign", "Sin", "Sqrt",
           "Square", "StopGradient", "Subtract", "Tan", "Tanh", "Unflatten") ||
        name.substr(0, 4) == "View";
  }
  return true;
}

void write_bytes(std::string& line, const mx::array& array) {
  bool read = array.status() == mx::array::Status::available && array.flags().row_contiguous;
  if (!read || array.nbytes() > kMostBytes || array.size() == 0) {
    return;
  }
  const uint8_t* bytes = mlx_array_data_uint8({const_cast<mx::array*>(&array)});
  for (size_t at = 0; at < array.nbytes(); ++at) {
    line.push_back("0123456789abcdef"[bytes[at] >> 4]);
    line.push_back("0123456789abcdef"[bytes[at] & 15]);
  }
}

void write_array(std::string& text, const mx::array& array, bool leaf) {
  std::string line = std::to_string(array.id());
  line.push_back('\t');
  std::string numbers;
  if (leaf) {
    line.append("leaf");
  } else if (!array.has_primitive()) {
    line.append("constant");
  } else {
    line.append(array.primitive().name());
    if (!write_state(numbers, array.primitive())) {
      line.append("?");
    }
  }
  line.push_back('\t');
  write(line, array.sibling_position());
  line.push_back('\t');
  line.append(dtype_of(array));
  line.push_back('\t');
  write_all(line, array.shape());
  line.push_back('\t');
  line.append(numbers);
  line.push_back('\t');
  if (!leaf && array.has_primitive()) {
    for (const auto& input : array.inputs()) {
      write_id(line, input.id());
    }
  }
  line.push_back('\t');
  if (!leaf && !array.has_primitive()) {
    write_bytes(line, array);
  }
  text.append(line);
  text.push_back('\n');
}

} // namespace

extern "C" uintptr_t mgraph_mlx_id(mlx_array handle) {
  return array_of(handle).id();
}

// Of all `results`, down to `leaves`. The caller frees the text with `mgraph_mlx_free`; null where there is no memory.
extern "C" char* mgraph_mlx_graph(
    const mlx_array* results,
    size_t result_count,
    const mlx_array* leaves,
    size_t leaf_count) noexcept try {
  std::unordered_set<std::uintptr_t> stops;
  for (size_t at = 0; at < leaf_count; ++at) {
    stops.insert(array_of(leaves[at]).id());
  }
  std::unordered_set<std::uintptr_t> done;
  std::string text;
  // The array, and how many of its operands were walked.
  std::vector<std::pair<const mx::array*, size_t>> path;
  for (size_t at = 0; at < result_count; ++at) {
    path.emplace_back(&array_of(results[at]), 0);
    while (!path.empty()) {
      auto& [array, walked] = path.back();
      bool leaf = stops.contains(array->id());
      if (done.contains(array->id())) {
        path.pop_back();
      } else if (!leaf && walked < array->inputs().size()) {
        const mx::array* next = &array->inputs()[walked++];
        path.emplace_back(next, 0);
      } else {
        done.insert(array->id());
        write_array(text, *array, leaf);
        path.pop_back();
      }
    }
  }
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) {
    std::memcpy(copy, text.c_str(), text.size() + 1);
  }
  return copy;
} catch (...) {
  return nullptr;
}

extern "C" void mgraph_mlx_free(char* text) {
  std::free(text);
}
