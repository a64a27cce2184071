// strided.hpp: copies between a matrix as a file has it (perhaps transposed, perhaps a slice of a
// wider one, not aligned) and the same matrix in memory, converting elements on the way.
//
// Knows nothing of files or parameters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "training/tensor/element.hpp"

namespace tutti::training {

// Element (row, column) is number first + row * row_stride + column * column_stride of `data`.
struct Strided {
  std::byte* data = nullptr;  // of a source, only read
  DataType type = DataType::float32;
  std::int64_t first = 0, row_stride = 0, column_stride = 1;

  std::int64_t at(std::int64_t row, std::int64_t column) const {
    return first + row * row_stride + column * column_stride;
  }
};

// Elements [begin, end) of a matrix with so many columns, counted row by row.
struct ElementRange {
  std::int64_t begin = 0, end = 0, columns = 1;
};

namespace detail {

template <typename From, typename To>
void copy_element(const Strided& from, std::int64_t i, const Strided& to, std::int64_t j) {
  From value;
  std::memcpy(&value, from.data + i * static_cast<std::int64_t>(sizeof(From)), sizeof value);
  To made;
  if constexpr (std::is_same_v<From, To>)
    made = value;
  else
    made = store<To>(static_cast<Wide<To>>(load(value)));
  std::memcpy(to.data + j * static_cast<std::int64_t>(sizeof(To)), &made, sizeof made);
}

// Columns [first, last) of rows [row, row_end). A few rows at a time, column by column: where one
// side is transposed, both sides' elements come in runs.
template <typename From, typename To>
void copy_rectangle(const Strided& from, const Strided& to, std::int64_t row, std::int64_t row_end,
                    std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kRows = 32;
  const bool plain = from.column_stride == 1 && to.column_stride == 1;
  for (std::int64_t block; row < row_end; row = block) {
    block = plain ? row + 1 : std::min(row_end, row + kRows);
    for (std::int64_t column = first; column < last; ++column)
      for (std::int64_t r = row; r < block; ++r)
        copy_element<From, To>(from, from.at(r, column), to, to.at(r, column));
  }
}

}  // namespace detail

// Copies the elements of the range, by way of Wide<To>. Those of equal types keep their bits.
// Requires  floating types.
inline void copy_strided(const Strided& from, const Strided& to, const ElementRange& range) {
  if (range.begin >= range.end) return;
  visit(from.type, [&](auto from_zero) {
    visit(to.type, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      const std::int64_t columns = range.columns;
      std::int64_t row = range.begin / columns;
      const std::int64_t last_row = range.end / columns, tail = range.end % columns;
      const std::int64_t head = range.begin % columns;
      if (row == last_row)
        return detail::copy_rectangle<From, To>(from, to, row, row + 1, head, tail);
      if (head != 0) {
        detail::copy_rectangle<From, To>(from, to, row, row + 1, head, columns);
        ++row;
      }
      detail::copy_rectangle<From, To>(from, to, row, last_row, 0, columns);
      detail::copy_rectangle<From, To>(from, to, last_row, last_row + 1, 0, tail);
    });
  });
}

}  // namespace tutti::training
