#include "ascend/model/runner.h"

namespace binmoe::ascend {
namespace {

TileRequest request_for(const Soc& soc, Op op, const ConstPlanView& plan, const ConstRows& rows,
                        const Weights& weights) {
  TileRequest r;
  r.soc = &soc;
  r.op = op;
  r.rows = rows.type;
  if (weights.data != nullptr) r.weights = weights.type;
  r.tokens = plan.sizes.tokens;
  r.hidden_size = rows.cols;
  r.num_experts = plan.sizes.num_experts;
  r.top_k = plan.sizes.top_k;
  r.expert_capacity = plan.sizes.expert_capacity;
  return r;
}

}  // namespace

vector_core::Profile profile_of(const Soc& soc) {
  vector_core::Profile profile;
  profile.soc = soc.name;
  profile.vector_cores = soc.vector_cores;
  profile.ub_bytes = soc.ub_limit_bytes;
  return profile;
}

TileRequest request_of(const Soc& soc, const GatherJob& job) {
  TileRequest r = request_for(soc, Op::gather, job.plan, job.x, job.weights);
  if (r.rows == DType::bytes) r.hidden_size *= job.x.element_bytes;
  return r;
}

TileRequest request_of(const Soc& soc, const ScatterJob& job) {
  return request_for(soc, Op::scatter, job.plan, job.y, job.weights);
}

TileRequest request_of(const Soc& soc, const WgradJob& job) {
  TileRequest r = request_for(soc, Op::wgrad, job.plan, job.y, {});
  r.dw = job.dw.type;
  return r;
}

TileRequest request_of(const Soc& soc, const ScatterBackwardJob& job) {
  TileRequest r = request_for(soc, Op::scatter_backward, job.plan, job.grad, job.weights);
  r.dw = job.dw.type;
  return r;
}

}  // namespace binmoe::ascend
