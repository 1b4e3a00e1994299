#include "mover.h"

#include <nlohmann/json.hpp>

#include "plan_folder.h"

namespace binmoe::cli {

void add_mover_options(CLI::App& command, MoverOptions& options) {
  command.add_option("--plan", options.plan, "Folder that binmoe plan wrote; it is checked first")
      ->required()
      ->type_name("DIR");
  add_dtype(command, options.dtype);
}

Mover::Mover(const MoverOptions& options, Common& common)
    : options_(options), common_(common), context_(common.context()) {
  outputs_.add_file(options.out);
  if (!options.out_weights.empty()) outputs_.add_file(options.out_weights);
  progress_.step("reading " + options.plan);
  plan_ = read_sound_plan(options.plan);
}

Array& Mover::keep(Array array) {
  arrays_.push_back(std::make_unique<Array>(std::move(array)));
  return *arrays_.back();
}

Array& Mover::keep_output(Array array) {
  written_.push_back(&keep(std::move(array)));
  return *written_.back();
}

Array& Mover::read_tokens(const std::string& file, int64_t hidden) {
  progress_.step("reading " + file);
  Array& array = keep(read_array(file));
  require_dimensions(array, 2, "[tokens, hidden_size]");
  require_shape(array, {plan_.sizes().tokens, hidden < 0 ? array.extent(1) : hidden}, "[tokens, hidden_size]");
  return array;
}

Array& Mover::read_expert_rows(const std::string& file, int64_t hidden) {
  progress_.step("reading " + file);
  constexpr const char* kWords = "[num_experts, expert_capacity, hidden_size]";
  Array& array = keep(read_array(file));
  require_dimensions(array, 3, kWords);
  const Sizes& sizes = plan_.sizes();
  require_shape(array, {sizes.num_experts, sizes.expert_capacity, hidden < 0 ? array.extent(2) : hidden}, kWords);
  return array;
}

Weights Mover::read_weights(const Array& rows) {
  if (options_.weights.empty()) return {};
  progress_.step("reading " + options_.weights);
  Array& array = keep(read_array(options_.weights));
  const Weights weights = weights_of(array, plan_.sizes(), uint16_is_bf16());
  const DType row_type = float_type_of(rows, uint16_is_bf16());
  if (weights.type == DType::f64 && row_type != DType::f64)
    throw Failure(kBadData, array.name + ": weights are f64, but the rows of " + rows.name + " are " +
                                name_of(row_type) + "; f64 weights go with f64 rows only");
  return weights;
}

Array& Mover::make_tokens(DType type, int64_t hidden) {
  return keep_output(make_array(options_.out, type, {plan_.sizes().tokens, hidden}));
}

Array& Mover::make_expert_rows(DType type, int64_t hidden) {
  const Sizes& sizes = plan_.sizes();
  return keep_output(make_array(options_.out, type, {sizes.num_experts, sizes.expert_capacity, hidden}));
}

Array& Mover::make_expert_rows(const Array& like) {
  const Sizes& sizes = plan_.sizes();
  Array& array =
      keep_output(make_array(options_.out, like.type, {sizes.num_experts, sizes.expert_capacity, like.extent(1)}));
  array.version = like.version;
  return array;
}

WeightGradients Mover::make_weight_gradients(const std::string& file, DType rows) {
  if (file.empty()) return {};
  const DType type = rows == DType::f64 ? DType::f64 : DType::f32;
  Array& array = keep_output(make_array(file, type, {plan_.sizes().tokens, plan_.sizes().top_k}));
  return {array.data.get(), plan_.sizes().assignments(), type};
}

void Mover::finish() {
  for (size_t i = 0; i < written_.size(); ++i) {
    progress_.step("writing " + written_[i]->name);
    outputs_.write(i, *written_[i]);
  }
  outputs_.commit();
  std::string text;
  nlohmann::ordered_json out = {{"backend", context_.backend->name}};
  for (const Array* array : written_) {
    std::string descr = array->type.descr;
    if (array->type.simple) descr = descr.substr(1, descr.size() - 2);  // without the quotes
    text += "wrote " + array->name + ": " + text_of(array->shape) + " " + descr + " (" + context_.backend->name + ")\n";
    out["outputs"].push_back({{"file", array->name}, {"shape", array->shape}, {"descr", descr}});
  }
  print(common_.json ? out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" : text);
}

void require_same_type(const Array& array, const ConstRows& view, const Array& other, const ConstRows& other_view) {
  if (view.type != other_view.type)
    throw Failure(kBadData, array.name + ": its dtype is " + name_of(view.type) + ", but that of " + other.name +
                                " is " + name_of(other_view.type) + "; all rows of a call share one dtype");
}

}  // namespace binmoe::cli
