/* ---- GuardedCall ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t inputs, fresh;
    PyObject *kept; /* the arguments that it was made of, which hold what follows */
    Launches *launches;
    PyObject *dtypes, *layouts, *fillers, *stream, *empty, *otherwise, *device;
    long device_number;
} GuardedCall;

/* The address of a tensor; an error as Python's own if it is none. */
static uint64_t address_of(PyObject *tensor) {
    PyObject *found = PyObject_CallMethodNoArgs(tensor, data_ptr);
    if (!found) return 0;
    uint64_t address = PyLong_AsUnsignedLongLong(found);
    Py_DECREF(found);
    return address;
}

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
    if (self->fresh && PyList_GET_SIZE(self->fillers)) return 0;
    uint64_t together = 0;
    for (Py_ssize_t n = 0; n < self->inputs; n++) {
        together |= addresses[n] = address_of(inputs[n]);
        if (PyErr_Occurred()) return -1;
    }
    if (together % 16) return 0;
    for (Py_ssize_t n = 0; n < self->inputs; n++) {
        PyObject *found = PyObject_GetAttr(inputs[n], dtype);
        if (!found) return -1;
        int same = found == PyTuple_GET_ITEM(self->dtypes, n);
        Py_DECREF(found);
        int there = same ? is_there(self, inputs[n]) : 0;
        if (there <= 0) return there;
    }
    return 1;
}

/* As `fits`, for one more fresh tensor: whether it is on the device. */
static int make(GuardedCall *self, PyObject **fresh, uint64_t *addresses, Py_ssize_t number) {
    PyObject *const *layout = &PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->layouts, number), 0);
    PyObject *tensor = PyObject_Vectorcall(self->empty, layout, 3, NULL);
    if (!tensor) return -1;
    fresh[number] = tensor;
    addresses[self->inputs + number] = address_of(tensor);
    if (PyErr_Occurred()) return -1;
    return number ? 1 : is_there(self, tensor); /* all are on the current device */
}

static PyObject *call(PyObject *callable, PyObject *const *inputs, size_t flags, PyObject *names) {
    GuardedCall *self = (GuardedCall *)callable;
    if (PyVectorcall_NARGS(flags) != self->inputs || names) {
        if (!self->kept) return PyErr_Format(PyExc_RuntimeError, "a GuardedCall was called while it was deleted");
        return PyObject_Vectorcall(self->otherwise, inputs, flags, names);
    }
    uint64_t addresses[self->inputs + self->fresh + 1];
    PyObject *fresh[self->fresh + 1];
    memset(fresh, 0, sizeof fresh);
    PyObject *result = NULL;
    int good = fits(self, inputs, addresses);
    for (Py_ssize_t n = 0; good > 0 && n < self->fresh; n++) good = make(self, fresh, addresses, n);
    if (good > 0) {
        PyObject *stream = PyObject_CallOneArg(self->stream, self->device);
        unsigned long long handle = stream ? PyLong_AsUnsignedLongLong(stream) : 0;
        Py_XDECREF(stream);
        good = PyErr_Occurred() ? -1 : 1;
        if (good > 0 && launch_all(self->launches, addresses, (void *)(uintptr_t)handle) < 0) good = -1;
    }
    if (good == 0) {
        result = PyObject_Vectorcall(self->otherwise, inputs, flags, NULL);
    } else if (good > 0 && self->fresh == 0) {
        result = Py_NewRef(Py_None);
    } else if (good > 0 && self->fresh == 1) {
        return fresh[0];
    } else if (good > 0 && (result = PyTuple_New(self->fresh))) {
        for (Py_ssize_t n = 0; n < self->fresh; n++) PyTuple_SET_ITEM(result, n, fresh[n]);
        return result;
    }
    for (Py_ssize_t n = 0; n < self->fresh; n++) Py_XDECREF(fresh[n]);
    return result;
}

static int all_of(PyObject *tuples, Py_ssize_t size) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(tuples); n++) {
        PyObject *item = PyTuple_GET_ITEM(tuples, n);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != size) return 0;
    }
    return 1;
}

static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *dtypes, *layouts, *launches, *fillers, *stream, *empty, *otherwise, *device;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "a GuardedCall takes no keywords");
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!OOO", &PyTuple_Type, &dtypes, &PyTuple_Type, &layouts, launches_type,
                          &launches, &PyLong_Type, &device, &PyList_Type, &fillers, &stream, &empty, &otherwise))
        return NULL;
    if (!all_of(layouts, 3)) return PyErr_Format(PyExc_ValueError, "a GuardedCall takes layouts, tuples of three");
    if (PyTuple_GET_SIZE(dtypes) + PyTuple_GET_SIZE(layouts) != ((Launches *)launches)->tensors)
        return PyErr_Format(PyExc_ValueError, "a GuardedCall has as many tensors as its launches");
    long number = PyLong_AsLong(device);
    if (PyErr_Occurred()) return NULL;
    GuardedCall *self = (GuardedCall *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = call;
    self->inputs = PyTuple_GET_SIZE(dtypes), self->fresh = PyTuple_GET_SIZE(layouts), self->device_number = number;
    self->kept = Py_NewRef(args);
    self->launches = (Launches *)launches;
    self->dtypes = dtypes, self->layouts = layouts, self->fillers = fillers, self->device = device;
    self->stream = stream, self->empty = empty, self->otherwise = otherwise;
    return (PyObject *)self;
}

static int call_traverse(GuardedCall *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->kept);
    return 0;
}

static int call_clear(GuardedCall *self) {
    self->inputs = -1; /* no call has so many */
    Py_CLEAR(self->kept); /* `otherwise` leads back to this call */
    return 0;
}

static void call_dealloc(GuardedCall *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->kept);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(GuardedCall, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot call_slots[] = {
    {Py_tp_doc, "GuardedCall(dtypes, layouts, launches, device, fillers, stream, empty, otherwise)"},
    {Py_tp_new, call_new},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_traverse, call_traverse},
    {Py_tp_clear, call_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, call_members},
    {0},
};

static PyType_Spec call_spec = {
    "passnet_launch.GuardedCall", sizeof(GuardedCall), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, call_slots,
};
