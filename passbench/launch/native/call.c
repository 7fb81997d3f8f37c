/* ---- Call: what GuardedCall and ReplayedCall have in common, their first member ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t inputs, fresh;
    PyObject *kept; /* the arguments that it was made of, which hold what follows */
    Launches *launches;
    PyObject *layouts, *empty, *otherwise;
} Call;

enum {
    CALL_FLAGS = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
};

/* The address of a tensor; an error as Python's own if it is none. */
static uint64_t address_of(PyObject *tensor) {
    PyObject *found = PyObject_CallMethodNoArgs(tensor, data_ptr);
    if (!found) return 0;
    uint64_t address = PyLong_AsUnsignedLongLong(found);
    Py_DECREF(found);
    return address;
}

/* 1 if all inputs are aligned, with their addresses; 0 if one is not; -1 and an error if one is no tensor. */
static int are_aligned(Call *self, PyObject *const *inputs, uint64_t *addresses) {
    uint64_t together = 0;
    for (Py_ssize_t n = 0; n < self->inputs; n++) {
        together |= addresses[n] = address_of(inputs[n]);
        if (PyErr_Occurred()) return -1;
    }
    return together % 16 == 0;
}

/* A tuple of fresh tensors, whose addresses come behind those of the inputs; NULL and an error. */
static PyObject *fresh_tensors(Call *self, uint64_t *addresses) {
    PyObject *results = PyTuple_New(self->fresh);
    for (Py_ssize_t n = 0; results && n < self->fresh; n++) {
        PyObject *const *layout = &PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->layouts, n), 0);
        PyObject *tensor = PyObject_Vectorcall(self->empty, layout, 3, NULL);
        if (tensor) {
            PyTuple_SET_ITEM(results, n, tensor);
            addresses[self->inputs + n] = address_of(tensor);
        }
        if (PyErr_Occurred()) Py_CLEAR(results);
    }
    return results;
}

/* The first result alone. */
static PyObject *only_one(PyObject *results) {
    PyObject *one = Py_NewRef(PyTuple_GET_ITEM(results, 0));
    Py_DECREF(results);
    return one;
}

/* What `otherwise` returns for a call's arguments; NULL where there is an error already. */
static PyObject *by_otherwise(Call *self, PyObject *const *inputs, size_t flags, PyObject *names) {
    return PyErr_Occurred() ? NULL : PyObject_Vectorcall(self->otherwise, inputs, flags, names);
}

static PyObject *was_deleted(Call *self) {
    return PyErr_Format(PyExc_RuntimeError, "%s: called while it was deleted", Py_TYPE(self)->tp_name);
}

/* 1 if all items are tuples of this size. */
static int all_of(PyObject *tuples, Py_ssize_t size) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(tuples); n++) {
        PyObject *item = PyTuple_GET_ITEM(tuples, n);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != size) return 0;
    }
    return 1;
}

/* A call whose layouts, launches and functions are set gets the rest; -1 and an error if they do not fit each other.
   `others`: tensors of the launches beside inputs and fresh ones. */
static int begin_call(Call *self, vectorcallfunc function, PyObject *args, Py_ssize_t inputs, Py_ssize_t others) {
    if (!all_of(self->layouts, 3)) return PyErr_Format(PyExc_ValueError, "layouts are tuples of three"), -1;
    Py_ssize_t fresh = PyTuple_GET_SIZE(self->layouts);
    if (inputs < 0 || inputs > MOST || inputs + fresh + others != self->launches->tensors)
        return PyErr_Format(PyExc_ValueError, "a call has as many tensors as its launches"), -1;
    self->vectorcall = function;
    self->inputs = inputs, self->fresh = fresh;
    self->kept = Py_NewRef(args);
    return 0;
}

static int call_traverse(Call *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->kept);
    return 0;
}

static int call_clear(Call *self) {
    Py_CLEAR(self->kept); /* `otherwise` leads back to this call */
    return 0;
}

static void call_dealloc(Call *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->kept);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Call, vectorcall), READONLY, NULL},
    {NULL},
};
