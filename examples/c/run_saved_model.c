// Runs a signature of a SavedModel on WGPU, without Python.
//
//     run_saved_model PLUGIN MODEL RUNS FETCH FEED=2x4 [FEED=2x1 ...]
//
// PLUGIN is libtensorflow_wgpu.so, MODEL the folder of a SavedModel. FETCH and FEED are names of
// tensors as `saved_model_cli show` lists them, such as StatefulPartitionedCall:0. The values of
// the feeds, float32, are read from stdin. Each of the RUNS prints what was fetched in a line; a
// signature that trains changes the variables from one run to the next.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>
#include <tensorflow/c/c_api_experimental.h>

enum { MAX_FEEDS = 8, MAX_RANK = 8, MAX_NAME = 256 };

// Ends the program with an error.
static void fail(const char* what, const char* why) {
  fprintf(stderr, "run_saved_model: %s: %s\n", what, why);
  exit(1);
}

static void check(const TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

// The tensor NAME:INDEX of a graph.
static TF_Output output_named(TF_Graph* graph, const char* tensor) {
  char name[MAX_NAME];
  snprintf(name, sizeof name, "%s", tensor);
  char* colon = strrchr(name, ':');
  if (!colon) fail(tensor, "is not NAME:INDEX");
  *colon = '\0';
  TF_Output output = {TF_GraphOperationByName(graph, name), atoi(colon + 1)};
  if (!output.oper) fail(tensor, "is not in the graph");
  return output;
}

// A float32 tensor of a shape such as 2x4, with values from stdin.
static TF_Tensor* tensor_from_stdin(const char* shape) {
  int64_t dims[MAX_RANK];
  int rank = 0;
  size_t elements = 1;
  for (char* rest = (char*)shape; *rest; rest += *rest == 'x') {
    if (rank == MAX_RANK) fail(shape, "has too many dimensions");
    char* end;
    dims[rank] = strtoll(rest, &end, 10);
    if (end == rest || dims[rank] < 0) fail(shape, "is not a shape");
    elements *= (size_t)dims[rank++];
    rest = end;
  }
  TF_Tensor* tensor = TF_AllocateTensor(TF_FLOAT, dims, rank, elements * sizeof(float));
  if (!tensor) fail(shape, "cannot be allocated");
  float* values = TF_TensorData(tensor);
  for (size_t i = 0; i < elements; i++) {
    if (scanf("%f", &values[i]) != 1) fail(shape, "stdin has too few values");
  }
  return tensor;
}

static void print_tensor(const TF_Tensor* tensor) {
  if (TF_TensorType(tensor) != TF_FLOAT) fail("the fetched tensor", "is not float32");
  const float* values = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); i++) printf(" %.9g", values[i]);
  printf("\n");
}

static void list_devices(TF_Session* session, TF_Status* status) {
  TF_DeviceList* devices = TF_SessionListDevices(session, status);
  check(status, "devices");
  for (int i = 0; i < TF_DeviceListCount(devices); i++) {
    printf("device %s\n", TF_DeviceListName(devices, i, status));
    check(status, "device");
  }
  TF_DeleteDeviceList(devices);
}

// What the devices did, as `tensorflow_wgpu.statistics()` tells it in Python.
static void print_statistics(const char* plugin) {
  void* library = dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
  if (!library) fail(plugin, dlerror());
  char* (*statistics)(void) = (char* (*)(void))dlsym(library, "tensorflow_wgpu_statistics");
  void (*release)(char*) = (void (*)(char*))dlsym(library, "tensorflow_wgpu_free");
  if (!statistics || !release) fail(plugin, dlerror());
  char* text = statistics();
  printf("statistics %s\n", text);
  release(text);
  dlclose(library);
}

int main(int argc, char** argv) {
  if (argc < 6 || argc > 5 + MAX_FEEDS) {
    fail("usage", "run_saved_model PLUGIN MODEL RUNS FETCH FEED=2x4 ...");
  }
  const char *plugin = argv[1], *model = argv[2], *fetch = argv[4];
  const int runs = atoi(argv[3]), feeds = argc - 5;
  TF_Status* status = TF_NewStatus();

  // Before the first session: its devices are found when it is made.
  TF_Library* library = TF_LoadPluggableDeviceLibrary(plugin, status);
  check(status, plugin);

  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, model, tags, 1, graph, NULL, status);
  check(status, model);
  list_devices(session, status);

  TF_Output inputs[MAX_FEEDS], output = output_named(graph, fetch);
  TF_Tensor* values[MAX_FEEDS];
  for (int i = 0; i < feeds; i++) {
    char* shape = strchr(argv[5 + i], '=');
    if (!shape) fail(argv[5 + i], "is not NAME=SHAPE");
    *shape++ = '\0';
    inputs[i] = output_named(graph, argv[5 + i]);
    values[i] = tensor_from_stdin(shape);
  }
  for (int run = 0; run < runs; run++) {
    TF_Tensor* result = NULL;
    TF_SessionRun(session, NULL, inputs, values, feeds, &output, &result, 1, NULL, 0, NULL, status);
    check(status, fetch);
    printf("result");
    print_tensor(result);
    TF_DeleteTensor(result);
  }
  print_statistics(plugin);

  for (int i = 0; i < feeds; i++) TF_DeleteTensor(values[i]);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeletePluggableDeviceLibraryHandle(library);
  TF_DeleteStatus(status);
  return 0;
}
