// header_alone.cc: header_alone.c as C++.
#include "header_alone.c"
