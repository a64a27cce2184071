// lookup.hpp: rows of a table by number: tokens to vectors, and positions to vectors. Knows nothing
// of modules.
#pragma once

#include <cstdint>
#include <span>

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// result row r = row rows[r] of `table`, or zeros where the table has no such row.
// Requires  one type, as many columns.
void gather_rows(const Tensor& table, std::span<const std::int64_t> rows, const Tensor& result);

// Row rows[r] of `sums` += row r of `terms`, in the order of r; nothing where there is no such row.
// Requires  `sums` of wide_type(terms.type()), or of that type itself; as many columns.
void scatter_add_rows(const Tensor& terms, std::span<const std::int64_t> rows, const Tensor& sums);

// Row r of `sums` += row rows[r] of `table`. Requires  one type, as many columns, all rows there.
void add_gathered_rows(const Tensor& table, std::span<const std::int64_t> rows, const Tensor& sums);

}  // namespace tutti::training
