/* ---- GuardedCall ---- */

typedef struct {
    Kernel *kernel;
    Py_ssize_t *numbers, made; /* its tensors by number, and how many tensors must be there before it is launched */
} Step;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t inputs, fresh, count;
    Step *steps;
    PyObject *kept; /* the arguments that it was made of, which hold the kernels of its steps and what follows */
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
    PyObject *result = NULL, *where = NULL;
    void *stream = NULL;
    Py_ssize_t made = 0;
    int good = fits(self, inputs, addresses);
    for (Py_ssize_t at = 0; good > 0 && at < self->count; at++) {
        Step *step = &self->steps[at];
        for (; good > 0 && made < step->made; made++) good = make(self, fresh, addresses, made);
        if (good <= 0) break; /* no launch yet, or an error */
        if (!where) {
            where = PyObject_CallOneArg(self->stream, self->device);
            if (where) stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(where);
            if (PyErr_Occurred()) good = -1;
        }
        if (good > 0 && start(step->kernel, addresses, step->numbers, stream) < 0) good = -1;
    }
    Py_XDECREF(where);
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

/* A step's tensors by number, each below `most`; NULL and an error if they are not the kernel's. */
static Py_ssize_t *numbers_of(PyObject *given, Kernel *kernel, Py_ssize_t most) {
    Py_ssize_t length = PyTuple_GET_SIZE(given), *numbers = PyMem_Calloc(length + 1, sizeof(Py_ssize_t));
    if (!numbers) return (Py_ssize_t *)PyErr_NoMemory();
    if (length != kernel->tensors) PyErr_SetString(PyExc_ValueError, "a step has not as many tensors as its kernel");
    for (Py_ssize_t n = 0; n < length && !PyErr_Occurred(); n++) {
        numbers[n] = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, n));
        if (!PyErr_Occurred() && (numbers[n] < 0 || numbers[n] >= most))
            PyErr_SetString(PyExc_ValueError, "a step has a number of no tensor");
    }
    if (!PyErr_Occurred()) return numbers;
    PyMem_Free(numbers);
    return NULL;
}

static int set_steps(GuardedCall *self, PyObject *steps) {
    Py_ssize_t count = PyTuple_GET_SIZE(steps), made = self->fresh ? 1 : 0;
    self->steps = PyMem_Calloc(count + 1, sizeof(Step));
    if (!self->steps) return PyErr_NoMemory(), -1;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *kernel, *numbers;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, at), "O!O!", kernel_type, &kernel, &PyTuple_Type, &numbers))
            return -1;
        Step *step = &self->steps[at];
        step->numbers = numbers_of(numbers, (Kernel *)kernel, self->inputs + self->fresh);
        if (!step->numbers) return -1;
        step->kernel = (Kernel *)kernel;
        self->count = at + 1;
        for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(numbers); n++)
            if (step->numbers[n] - self->inputs + 1 > made) made = step->numbers[n] - self->inputs + 1;
        step->made = at + 1 == count ? self->fresh : made;
    }
    return 0;
}

static int all_of(PyObject *tuples, Py_ssize_t size) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(tuples); n++) {
        PyObject *item = PyTuple_GET_ITEM(tuples, n);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != size) return 0;
    }
    return 1;
}

static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *dtypes, *layouts, *steps, *fillers, *stream, *empty, *otherwise, *device;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "a GuardedCall takes no keywords");
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!OOO", &PyTuple_Type, &dtypes, &PyTuple_Type, &layouts, &PyTuple_Type, &steps,
                          &PyLong_Type, &device, &PyList_Type, &fillers, &stream, &empty, &otherwise))
        return NULL;
    if (!all_of(layouts, 3) || !all_of(steps, 2) || !PyTuple_GET_SIZE(steps))
        return PyErr_Format(PyExc_ValueError, "a GuardedCall takes layouts, tuples of three, and steps, tuples of two");
    if (PyTuple_GET_SIZE(dtypes) + PyTuple_GET_SIZE(layouts) > MOST)
        return PyErr_Format(PyExc_ValueError, "a GuardedCall takes at most %d tensors", MOST);
    long number = PyLong_AsLong(device);
    if (PyErr_Occurred()) return NULL;
    GuardedCall *self = (GuardedCall *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = call;
    self->inputs = PyTuple_GET_SIZE(dtypes), self->fresh = PyTuple_GET_SIZE(layouts), self->device_number = number;
    self->kept = Py_NewRef(args);
    self->dtypes = dtypes, self->layouts = layouts, self->fillers = fillers, self->device = device;
    self->stream = stream, self->empty = empty, self->otherwise = otherwise;
    if (set_steps(self, steps) == 0) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
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
    for (Py_ssize_t at = 0; at < self->count; at++) PyMem_Free(self->steps[at].numbers);
    PyMem_Free(self->steps);
    Py_XDECREF(self->kept);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(GuardedCall, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot call_slots[] = {
    {Py_tp_doc, "GuardedCall(dtypes, layouts, steps, device, fillers, stream, empty, otherwise)"},
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
