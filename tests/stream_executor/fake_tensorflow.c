/* The functions of TensorFlow that the plugin's stream executor and graph optimizer need. Built
 * under the name of TensorFlow's library, so that the plugin finds it the way it finds TensorFlow.
 * Objects are counted, so that tests find those that were not deleted. Functions that must not be
 * called are defined because the plugin looks them up. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Objects that were made and not deleted. */
static atomic_long live;

static void* make(size_t size) {
  atomic_fetch_add(&live, 1);
  return calloc(1, size);
}
static void delete(void* object) {
  if (object == NULL) return;
  atomic_fetch_sub(&live, 1);
  free(object);
}
long fake_live_objects(void) { return atomic_load(&live); }

typedef struct {
  int code;
  char message[1024];
} TF_Status;

TF_Status* TF_NewStatus(void) { return make(sizeof(TF_Status)); }
void TF_DeleteStatus(TF_Status* status) { delete(status); }
int TF_GetCode(const TF_Status* status) { return status->code; }
const char* TF_Message(const TF_Status* status) { return status->message; }
void TF_SetStatus(TF_Status* status, int code, const char* message) {
  status->code = code;
  strncpy(status->message, message, sizeof(status->message) - 1);
}
const char* TF_Version(void) { return "2.18.1"; }

typedef struct {
  const void* data;
  size_t length;
  void (*data_deallocator)(void* data, size_t length);
} TF_Buffer;

TF_Buffer* TF_NewBuffer(void) { return make(sizeof(TF_Buffer)); }
void TF_DeleteBuffer(TF_Buffer* buffer) {
  if (buffer != NULL && buffer->data_deallocator != NULL) {
    buffer->data_deallocator((void*)buffer->data, buffer->length);
  }
  delete(buffer);
}
/* An empty message: no op is known, so the plugin defines its own ops, and registers kernels for
 * these alone. */
TF_Buffer* TF_GetAllOpList(void) { return TF_NewBuffer(); }

/* Definitions of ops: taken and thrown away. */
void* TF_NewOpDefinitionBuilder(const char* name) { return make(1); }
void TF_OpDefinitionBuilderAddAttr(void* builder, const char* spec) {}
void TF_OpDefinitionBuilderAddInput(void* builder, const char* spec) {}
void TF_OpDefinitionBuilderAddOutput(void* builder, const char* spec) {}
void TF_OpDefinitionBuilderSetIsStateful(void* builder, _Bool stateful) {}
void TF_OpDefinitionBuilderSetShapeInferenceFunction(void* builder, void* function) {}
void TF_RegisterOpDefinition(void* builder, TF_Status* status) { delete(builder); }

/* Kernels: taken and thrown away, like the ops. */
void* TF_NewKernelBuilder(const char* op, const char* device, void* create, void* compute,
    void* delete_kernel) {
  return make(1);
}
void TF_DeleteKernelBuilder(void* builder) { delete(builder); }
void TF_KernelBuilder_TypeConstraint(void* builder, const char* attr, int type,
    TF_Status* status) {}
void TF_KernelBuilder_HostMemory(void* builder, const char* argument) {}
void TF_RegisterKernelBuilder(const char* op, void* builder, TF_Status* status) { delete(builder); }

/* A graph with the name of one node to preserve. The type and shape of every output are known:
 * TensorProperties of float32[4]. */
static const char kPreserved[] = "kept";
static const uint8_t kProperties[] = {0x08, 1, 0x12, 4, 0x12, 2, 0x08, 4};

void TF_GetNodesToPreserveListSize(const void* item, int* count, size_t* bytes, TF_Status* status) {
  *count = 1;
  *bytes = strlen(kPreserved);
}
void TF_GetNodesToPreserveList(const void* item, char** values, size_t* lengths, int count,
    void* storage, size_t bytes,
                               TF_Status* status) {
  memcpy(storage, kPreserved, bytes);
  values[0] = storage;
  lengths[0] = bytes;
}
void TF_GetFetchNodesListSize(const void* item, int* count, size_t* bytes,
    TF_Status* status) { *count = *bytes = 0; }
void TF_GetFetchNodesList(const void* item, char** values, size_t* lengths, int count,
    void* storage, size_t bytes,
                          TF_Status* status) {}
_Bool fail_inference;
void* TF_NewGraphProperties(const void* item) { return make(1); }
void TF_DeleteGraphProperties(void* properties) { delete(properties); }
void TF_InferStatically(void* properties, uint8_t a, uint8_t b, uint8_t c, uint8_t d,
    TF_Status* status) {
  if (fail_inference) TF_SetStatus(status, 13, "inference fails");
}
void TF_GetInputPropertiesListSize(void* properties, const char* name, int* count,
    TF_Status* status) { *count = 0; }
void TF_GetInputPropertiesList(void* properties, const char* name, TF_Buffer** list, int count,
    TF_Status* status) {}
void TF_GetOutputPropertiesListSize(void* properties, const char* name, int* count,
    TF_Status* status) {
  *count = 1;
}
static void free_copy(void* data, size_t length) { delete(data); }
static void fill(TF_Buffer* buffer, const void* bytes, size_t length) {
  void* copy = make(length);
  memcpy(copy, bytes, length);
  *buffer = (TF_Buffer){copy, length, free_copy};
}
void TF_GetOutputPropertiesList(void* properties, const char* name, TF_Buffer** list, int count,
    TF_Status* status) {
  for (int i = 0; i < count; ++i) fill(list[i], kProperties, sizeof(kProperties));
}
void* TF_NewFunctionLibraryDefinition(const TF_Buffer* graph, TF_Status* status) { return make(1); }
void TF_DeleteFunctionLibraryDefinition(void* library) { delete(library); }
void TF_LookUpOpDef(void* library, const char* name, TF_Buffer* buffer, TF_Status* status) {
  TF_SetStatus(status, 5, "no such op");
}

#define NOT_CALLED(name) \
  void name(void) { abort(); }
/* Variables. */
NOT_CALLED(TF_AddNVariant)
NOT_CALLED(TF_AssignRefVariable)
NOT_CALLED(TF_AssignUpdateVariable)
NOT_CALLED(TF_AssignVariable)
NOT_CALLED(TF_DestroyTemporaryVariable)
NOT_CALLED(TF_GetInputByName)
NOT_CALLED(TF_GetInputTensorFromVariable)
NOT_CALLED(TF_IsRefInput)
NOT_CALLED(TF_MaybeLockVariableInputMutexesInOrder)
NOT_CALLED(TF_OpKernelContext_ForwardRefInputToRefOutput)
NOT_CALLED(TF_OpKernelContext_GetFrameId)
NOT_CALLED(TF_OpKernelConstruction_GetAttrTensorShape)
NOT_CALLED(TF_ReleaseVariableInputLockHolder)
NOT_CALLED(TF_TemporaryVariable)
NOT_CALLED(TF_ZerosLikeVariant)
/* Kernels. */
NOT_CALLED(TF_OpKernelConstruction_GetName)
NOT_CALLED(TF_OpKernelConstruction_Failure)
NOT_CALLED(TF_OpKernelConstruction_GetAttrSize)
NOT_CALLED(TF_OpKernelConstruction_GetAttrType)
NOT_CALLED(TF_OpKernelConstruction_GetAttrInt64)
NOT_CALLED(TF_OpKernelConstruction_GetAttrFloat)
NOT_CALLED(TF_OpKernelConstruction_GetAttrBool)
NOT_CALLED(TF_OpKernelConstruction_GetAttrString)
NOT_CALLED(TF_OpKernelConstruction_GetAttrTypeList)
NOT_CALLED(TF_OpKernelConstruction_GetAttrInt64List)
NOT_CALLED(TF_OpKernelConstruction_GetAttrFloatList)
NOT_CALLED(TF_GetStream)
NOT_CALLED(TF_NumInputs)
NOT_CALLED(TF_NumOutputs)
NOT_CALLED(TF_InputDatatype)
NOT_CALLED(TF_ExpectedOutputDataType)
NOT_CALLED(TF_GetInput)
NOT_CALLED(TF_SetOutput)
NOT_CALLED(TF_AllocateOutput)
NOT_CALLED(TF_ForwardInputOrAllocateOutput)
NOT_CALLED(TF_AllocateTemp)
NOT_CALLED(TF_OpKernelContext_Failure)
NOT_CALLED(TF_AllocateTensor)
NOT_CALLED(TF_DeleteTensor)
NOT_CALLED(TF_TensorType)
NOT_CALLED(TF_NumDims)
NOT_CALLED(TF_Dim)
NOT_CALLED(TF_TensorByteSize)
NOT_CALLED(TF_TensorData)
NOT_CALLED(TF_TensorBitcastFrom)
/* Shape functions. */
NOT_CALLED(TF_ShapeInferenceContextNumInputs)
NOT_CALLED(TF_ShapeInferenceContextGetInput)
NOT_CALLED(TF_ShapeInferenceContextSetOutput)
NOT_CALLED(TF_ShapeInferenceContextSetUnknownShape)
NOT_CALLED(TF_ShapeInferenceContext_GetAttrType)
NOT_CALLED(TF_ShapeInferenceContextRankKnown)
NOT_CALLED(TF_ShapeInferenceContextRank)
NOT_CALLED(TF_ShapeInferenceContextDim)
NOT_CALLED(TF_ShapeInferenceContextScalar)
NOT_CALLED(TF_ShapeInferenceContextVectorFromSize)
NOT_CALLED(TF_ShapeInferenceContextConcatenateShapes)
NOT_CALLED(TF_NewShapeHandle)
NOT_CALLED(TF_DeleteShapeHandle)
NOT_CALLED(TF_NewDimensionHandle)
NOT_CALLED(TF_DeleteDimensionHandle)
NOT_CALLED(TF_DimensionHandleValueKnown)
NOT_CALLED(TF_DimensionHandleValue)
