// lookup.cc: see lookup.hpp. Rows are copied, or added by elementwise.hpp's loops.
#include "training/ops/lookup.hpp"

#include <cstring>

#include "training/ops/elementwise.hpp"

namespace tutti::training {
namespace {

bool has_row(const Tensor& table, std::int64_t row) { return row >= 0 && row < table.rows(); }

Tensor row_of(const Tensor& t, std::int64_t row) {
  return t.elements(row * t.columns(), t.columns());
}

void check_extents(const Tensor& table, std::span<const std::int64_t> rows, const Tensor& other) {
  TRAINING_CHECK(table.columns() == other.columns(), "rows of a table are of another length");
  TRAINING_CHECK(other.rows() == static_cast<std::int64_t>(rows.size()), "one number for each row");
}

}  // namespace

void gather_rows(const Tensor& table, std::span<const std::int64_t> rows, const Tensor& result) {
  check_extents(table, rows, result);
  const std::size_t bytes = static_cast<std::size_t>(table.columns()) * size_of(table.type());
  std::byte* to = result.data();
  for (const std::int64_t row : rows) {
    if (has_row(table, row))
      std::memcpy(to, table.data() + static_cast<std::size_t>(row) * bytes, bytes);
    else
      std::memset(to, 0, bytes);
    to += bytes;
  }
}

void scatter_add_rows(const Tensor& terms, std::span<const std::int64_t> rows, const Tensor& sums) {
  check_extents(sums, rows, terms);
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (has_row(sums, rows[r]))
      add_column_sums(row_of(sums, rows[r]), row_of(terms, static_cast<std::int64_t>(r)));
}

void add_gathered_rows(const Tensor& table, std::span<const std::int64_t> rows,
                       const Tensor& sums) {
  check_extents(table, rows, sums);
  for (std::size_t r = 0; r < rows.size(); ++r)
    add_to(row_of(sums, static_cast<std::int64_t>(r)), row_of(table, rows[r]));
}

}  // namespace tutti::training
