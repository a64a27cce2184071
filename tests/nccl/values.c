/* values.c: see values.h. Written from the formats' definitions and not with the library's own
 * conversions, which it checks. */
#include "values.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A format of sign, exponent and mantissa bits. */
typedef struct {
  int exponent_bits;
  int mantissa_bits;
} Format;

static const Format float16_format = {5, 10};
static const Format bfloat16_format = {8, 7};
static const Format e4m3_format = {4, 3};
static const Format e5m2_format = {5, 2};

static unsigned encode(Format format, double value) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const unsigned sign = value < 0 ? 1u << (format.exponent_bits + format.mantissa_bits) : 0u;
  int exponent = 0;
  if (value == 0) return 0;
  const double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
  const double mantissa = (fraction * 2 - 1) * (1 << format.mantissa_bits);
  return sign | (unsigned)(exponent - 1 + bias) << format.mantissa_bits | (unsigned)mantissa;
}

static double decode(Format format, unsigned bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const unsigned mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const int exponent = (int)(bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1));
  const double scale = 1.0 / (1 << format.mantissa_bits);
  const double value = exponent == 0 ? ldexp(mantissa * scale, 1 - bias)
                                     : ldexp(1 + mantissa * scale, exponent - bias);
  return bits >> (format.exponent_bits + format.mantissa_bits) & 1 ? -value : value;
}

size_t size_of_type(ncclDataType_t type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

int is_unsigned(ncclDataType_t type) {
  return type == ncclUint8 || type == ncclUint32 || type == ncclUint64;
}

/* The low bytes of `bits`, on a machine whose first byte is the lowest. */
static void put_bits(unsigned char* place, size_t bytes, uint64_t bits) {
  memcpy(place, &bits, bytes);
}

void set_value(void* buffer, size_t index, ncclDataType_t type, double value) {
  unsigned char* place = (unsigned char*)buffer + index * size_of_type(type);
  const float single = (float)value;
  switch (type) {
    case ncclFloat16:
      put_bits(place, 2, encode(float16_format, value));
      break;
    case ncclBfloat16:
      put_bits(place, 2, encode(bfloat16_format, value));
      break;
    case ncclFloat8e4m3:
      put_bits(place, 1, encode(e4m3_format, value));
      break;
    case ncclFloat8e5m2:
      put_bits(place, 1, encode(e5m2_format, value));
      break;
    case ncclFloat32:
      memcpy(place, &single, sizeof single);
      break;
    case ncclFloat64:
      memcpy(place, &value, sizeof value);
      break;
    default: /* two's complement, of any width */
      put_bits(place, size_of_type(type), (uint64_t)(int64_t)value);
      break;
  }
}

static double whole_number(const unsigned char* place, ncclDataType_t type) {
  const unsigned width = (unsigned)size_of_type(type) * 8;
  uint64_t bits = 0;
  memcpy(&bits, place, size_of_type(type));
  if (is_unsigned(type)) return (double)bits;
  /* The sign, from where it is in the type to where it is in 64 bits. */
  return (double)((int64_t)(bits << (64 - width)) >> (64 - width));
}

double get_value(const void* buffer, size_t index, ncclDataType_t type) {
  const unsigned char* place = (const unsigned char*)buffer + index * size_of_type(type);
  uint16_t bits = 0;
  float single = 0;
  double value = 0;
  switch (type) {
    case ncclFloat16:
      memcpy(&bits, place, sizeof bits);
      return decode(float16_format, bits);
    case ncclBfloat16:
      memcpy(&bits, place, sizeof bits);
      return decode(bfloat16_format, bits);
    case ncclFloat8e4m3:
      return decode(e4m3_format, *place);
    case ncclFloat8e5m2:
      return decode(e5m2_format, *place);
    case ncclFloat32:
      memcpy(&single, place, sizeof single);
      return single;
    case ncclFloat64:
      memcpy(&value, place, sizeof value);
      return value;
    default:
      return whole_number(place, type);
  }
}
