/* What the plugin's stream executor needs of TensorFlow: TF_Status and the version. Built under the name of TensorFlow's
 * library, so that the plugin finds it the way it finds TensorFlow. The variable API is there to be found, not called. */
#include <stdlib.h>
#include <string.h>

typedef struct {
  int code;
  char message[1024];
} TF_Status;

TF_Status* TF_NewStatus(void) { return calloc(1, sizeof(TF_Status)); }
void TF_DeleteStatus(TF_Status* status) { free(status); }
int TF_GetCode(const TF_Status* status) { return status->code; }
const char* TF_Message(const TF_Status* status) { return status->message; }
void TF_SetStatus(TF_Status* status, int code, const char* message) {
  status->code = code;
  strncpy(status->message, message, sizeof(status->message) - 1);
}
const char* TF_Version(void) { return "2.18.1"; }

#define NOT_CALLED(name) \
  void name(void) { abort(); }
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
