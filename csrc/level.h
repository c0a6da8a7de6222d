// The operations of one level, declared where several of its files need them.
#pragma once

#include "kernels.h"

namespace octavo::OCTAVO_LEVEL {

void embed(Program&, const EmbedArgs&);
void norm(Program&, const NormArgs&);
void linear(Program&, const LinearArgs&);
void rope(Program&, const RopeArgs&);
void attend(Program&, const AttendArgs&);
void recur(Program&, const RecurArgs&);
void route(Program&, const RouteArgs&);
void glu(Program&, const GluArgs&);
void experts(Program&, const ExpertsArgs&);
void add(Program&, const float* x, const float* y, int64_t n, float* out);
void concat(Program&, const Heads& x, const Heads& y, float* out);
void take(Program&, const Heads& x, const int32_t* rows, int n_rows, float* out);
void softcap(Program&, const float* x, int64_t n, float cap, float* out);
void read_memory(Program&, const uint8_t* data, int64_t n_bytes, int64_t* sink);
double dot_peak(Program&, int64_t n_rounds, int n_chunks, float* sink);
double fma_peak(Program&, int64_t n_rounds, int n_chunks, float* sink);

}  // namespace octavo::OCTAVO_LEVEL
