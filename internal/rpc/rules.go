package rpc

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// RuleOf returns the rule of a method like /ulisse.v1.Jobs/Get, as proto/ has it,
// or nil: then nobody may call it.
func RuleOf(method string) *pb.Rule { return rules()[method] }

// Public reports whether everybody may make a call, without a word on who they
// are: to ask for the health.
func Public(method string) bool { return strings.HasPrefix(method, "/grpc.health.v1.Health/") }

// Job returns the job that a request names, empty for none.
func Job(r *pb.Rule, request proto.Message) string {
	m := request.ProtoReflect()
	f := m.Descriptor().Fields().ByName(protoreflect.Name(r.GetJob()))
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return ""
	}
	return m.Get(f).String()
}

// rules reads the options of all methods, once.
var rules = sync.OnceValue(func() map[string]*pb.Rule {
	out := map[string]*pb.Rule{}
	for _, m := range Methods() {
		if r, ok := proto.GetExtension(m.Options(), pb.E_Rule).(*pb.Rule); ok && r != nil {
			out[FullName(m)] = r
		}
	}
	// What the services look like is no secret, but strangers have no business here.
	for _, version := range []string{"v1", "v1alpha"} {
		out["/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo"] = &pb.Rule{Role: pb.Rule_VIEWER}
	}
	return out
})

// Methods returns the descriptors of all methods of services in proto/.
func Methods() (out []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage(pb.File_ulisse_v1_rule_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				out = append(out, methods.Get(j))
			}
		}
		return true
	})
	return out
}

// FullName returns how gRPC calls a method.
func FullName(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// NewMessages returns an empty request and an empty answer of a method.
func NewMessages(method string) (request, reply proto.Message, err error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		return nil, nil, fmt.Errorf("there is no method %s: %w", method, err)
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, nil, fmt.Errorf("%s is not a method", method)
	}
	in, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		return nil, nil, err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, nil, err
	}
	return in.New().Interface(), out.New().Interface(), nil
}
