/* ---- GuardedCall ---- */

typedef struct {
    Call call;
    PyObject *dtypes, *fillers, *stream, *device;
    long device_number;
} GuardedCall;

/* 1 if a tensor is on the device; -1 and an error if it cannot say. */
static int is_there(GuardedCall *self, PyObject *tensor) {
    PyObject *found = PyObject_CallMethodNoArgs(tensor, get_device);
    if (!found) return -1;
    long number = PyLong_AsLong(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : number == self->device_number;
}

/* 1 if the call may be made here, with the inputs' addresses; 0 if it is the other function's; -1 and an error. */
static int fits(GuardedCall *self, PyObject *const *inputs, uint64_t *addresses) {
    if (self->call.fresh && PyList_GET_SIZE(self->fillers)) return 0;
    int aligned = are_aligned(&self->call, inputs, addresses);
    if (aligned <= 0) return aligned;
    for (Py_ssize_t n = 0; n < self->call.inputs; n++) {
        PyObject *found = PyObject_GetAttr(inputs[n], dtype);
        if (!found) return -1;
        int same = found == PyTuple_GET_ITEM(self->dtypes, n);
        Py_DECREF(found);
        int there = same ? is_there(self, inputs[n]) : 0;
        if (there <= 0) return there;
    }
    return 1;
}

/* 1 if the launches are made; 0 if fresh tensors, all on the current device, are on another one; -1 and an error. */
static int launch_on(GuardedCall *self, PyObject *fresh, uint64_t *addresses) {
    int there = PyTuple_GET_SIZE(fresh) ? is_there(self, PyTuple_GET_ITEM(fresh, 0)) : 1;
    if (there <= 0) return there;
    PyObject *stream = PyObject_CallOneArg(self->stream, self->device);
    if (!stream) return -1;
    unsigned long long handle = PyLong_AsUnsignedLongLong(stream);
    Py_DECREF(stream);
    if (PyErr_Occurred()) return -1;
    return launch_all(self->call.launches, addresses, (void *)(uintptr_t)handle) < 0 ? -1 : 1;
}

static PyObject *guarded(PyObject *callable, PyObject *const *inputs, size_t flags, PyObject *names) {
    GuardedCall *self = (GuardedCall *)callable;
    if (!self->call.kept) return was_deleted(&self->call);
    uint64_t addresses[self->call.launches->tensors + 1];
    int good = !names && PyVectorcall_NARGS(flags) == self->call.inputs;
    if (good) good = fits(self, inputs, addresses);
    PyObject *results = good > 0 ? fresh_tensors(&self->call, addresses) : NULL;
    if (results && launch_on(self, results, addresses) <= 0) Py_CLEAR(results);
    if (!results) return by_otherwise(&self->call, inputs, flags, names);
    if (self->call.fresh > 1) return results;
    if (self->call.fresh) return only_one(results);
    Py_DECREF(results);
    Py_RETURN_NONE;
}

static PyObject *guarded_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    if (no_keywords(type, kwargs) < 0) return NULL;
    GuardedCall *self = (GuardedCall *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    Call *call = &self->call;
    if (PyArg_ParseTuple(args, "O!O!O!O!O!OOO", &PyTuple_Type, &self->dtypes, &PyTuple_Type, &call->layouts,
                         launches_type, &call->launches, &PyLong_Type, &self->device, &PyList_Type, &self->fillers,
                         &self->stream, &call->empty, &call->otherwise)) {
        self->device_number = PyLong_AsLong(self->device);
        if (!PyErr_Occurred() && begin_call(call, guarded, args, PyTuple_GET_SIZE(self->dtypes), 0) == 0)
            return (PyObject *)self;
    }
    Py_DECREF(self);
    return NULL;
}

static PyType_Slot guarded_slots[] = {
    {Py_tp_doc, "GuardedCall(dtypes, layouts, launches, device, fillers, stream, empty, otherwise)"},
    {Py_tp_new, guarded_new},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_traverse, call_traverse},
    {Py_tp_clear, call_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, call_members},
    {0},
};

static PyType_Spec guarded_spec = {"passnet_launch.GuardedCall", sizeof(GuardedCall), 0, CALL_FLAGS, guarded_slots};
